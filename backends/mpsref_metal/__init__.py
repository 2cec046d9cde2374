"""The kernels in Metal Shading Language, on an Apple GPU ("metal") or on any processor through clang ("metal:clang").

Both run the same MSL text and the same Python; only the runtime differs. "metal" never falls back to anything else.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import mpsref
from mpsref.deferred import Deferred
from mpsref.kernels import FAMILIES
from mpsref_metal.launch import Launcher
from mpsref_metal.runtimes import clang as clang_runtime
from mpsref_metal.runtimes import metalcompute as metalcompute_runtime

__all__ = ["backend_on", "clang", "metal"]


def backend_on(name: str, runtime: Any) -> mpsref.Backend:
    """Return the backend that runs the MSL kernels on ``runtime``."""
    launch = Launcher(runtime.Device)
    return mpsref.Backend(
        name,
        Deferred(__name__, FAMILIES, lambda function: partial(function, launch)),
        unavailable=runtime.unavailable,
        device=lambda: str(launch.device()),
        fast_math=True,
    )


metal = backend_on("metal", metalcompute_runtime)
clang = backend_on("metal:clang", clang_runtime)
