"""The kernels in Metal Shading Language, on an Apple GPU ("metal") or on any processor through clang ("metal:clang").

Both run the same MSL text and the same Python; only the runtime differs. "metal" never falls back to anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mpsref
from mpsref.registry import OperationKey
from mpsref_metal.launch import Launcher
from mpsref_metal.pooling import forward_of, gradient_of
from mpsref_metal.pooling_average import average
from mpsref_metal.runtimes import clang as clang_runtime
from mpsref_metal.runtimes import metalcompute as metalcompute_runtime

__all__ = ["backend_on", "clang", "metal"]

IMPLEMENTATIONS: dict[OperationKey, Callable[..., None]] = {
    (mpsref.PoolingAverage, "forward"): average,
    (mpsref.PoolingAverage, "gradient"): average,
    (mpsref.PoolingMax, "forward"): forward_of("pooling_max"),
    (mpsref.PoolingMax, "gradient"): gradient_of("pooling_max"),
    (mpsref.PoolingL2Norm, "forward"): forward_of("pooling_l2norm"),
    (mpsref.PoolingL2Norm, "gradient"): gradient_of("pooling_l2norm"),
}


def backend_on(name: str, runtime: Any) -> mpsref.Backend:
    """Return the backend that runs the MSL kernels on ``runtime``."""
    launch = Launcher(runtime.Device)
    return mpsref.Backend(
        name,
        {operation: partial(function, launch) for operation, function in IMPLEMENTATIONS.items()},
        unavailable=runtime.unavailable,
        device=lambda: str(launch.device()),
        fast_math=True,
    )


metal = backend_on("metal", metalcompute_runtime)
clang = backend_on("metal:clang", clang_runtime)
