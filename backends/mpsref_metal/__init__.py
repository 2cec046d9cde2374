"""The kernels in Metal Shading Language, on Apple GPUs (metal), processors (metal:clang) and NVIDIA GPUs (metal:cuda).

`metal:checked` is `metal:clang` with a check of each access: races, fences, bounds, uninitialized memory, arithmetic.
All run the same MSL sources and the same Python code; only the runtime differs. There is no fallback between them.
"""

from __future__ import annotations

from functools import cache, partial
from types import ModuleType

import mpsref
from anymetal import clang as clang_runtime
from anymetal import cuda as cuda_runtime
from anymetal import metalcompute as metalcompute_runtime
from mpsref.arguments.device import DeviceArray
from mpsref.backend import LazyImplementations
from mpsref_metal.launch import APPLE, H200, Gpu, Launcher

__all__ = ["backend_on", "checked", "clang", "cuda", "metal"]


MOST_LAUNCHES = 4096
"""Launches of a process, if the runtime slows down by each: at the end of the last one it searches a list of them."""

DeviceArray.register(cuda_runtime.Array)


def backend_on(
    name: str, runtime: ModuleType, gpu: Gpu = H200, *, named_only: bool = False, **options: bool
) -> mpsref.Backend:
    """Return the backend that runs the MSL kernels on ``runtime``, with launches tuned for ``gpu``.

    ``named_only`` is that of :class:`mpsref.Backend`; ``options`` are those of the runtime's device.
    """
    device = partial(runtime.Device, **options)
    launch = Launcher(getattr(runtime, "current_device", None) or cache(device), gpu)

    def unavailable() -> str | None:
        reason = runtime.unavailable()
        return reason and str(reason).replace('runtime="clang"', 'backend="metal:clang"')

    recorded = getattr(runtime, "recorded", lambda implementation: implementation)
    launches = getattr(runtime, "launches", lambda: 0)
    return mpsref.Backend(
        name,
        LazyImplementations(__name__, lambda function: recorded(partial(function, launch))),
        unavailable=unavailable,
        device=lambda: str(launch.device()),
        arrays=getattr(runtime, "arrays", None),
        fast_math=True,
        named_only=named_only,
        # Not isolated, on Metal neither: the process of isolated cases serves all blocks, and does not end when it is
        # worn, and a copy of the backend would be a fork of a process that may have used Metal. `--isolate` does it.
        is_worn=lambda: launches() > MOST_LAUNCHES,
    )


metal = backend_on("metal", metalcompute_runtime, APPLE)
clang = backend_on("metal:clang", clang_runtime)
checked = backend_on("metal:checked", clang_runtime, named_only=True, sanitize=True, check_order=False)
cuda = backend_on("metal:cuda", cuda_runtime)
