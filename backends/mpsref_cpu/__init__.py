"""The cpu backend: numba kernels on NumPy arrays.

An implementation is a function ``(problem, *inputs, out)``. It takes per-axis tables from the problem and fills
``out``, both float32; :mod:`mpsref_cpu.pooling.pooling_average` is the model. float16 images are converted by
:mod:`mpsref_cpu.half`. A family is imported when one of its kernels is first used, from the file with the name of
its module in ``mpsref.kernels``.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from anymetal.fork_safe import importing
from mpsref import Backend
from mpsref.backend import LazyImplementations
from mpsref.machine import cores
from mpsref.registry import Implementation

__all__ = ["backend"]


def _in_float32(function: Implementation) -> Implementation:
    from mpsref_cpu.half import in_float32  # imports numba, which takes as long as a list of all backends

    return in_float32(function)


def _device() -> str:
    threads = cores()  # as numba counts, unless it is told another number
    if "numba" in sys.modules or "NUMBA_NUM_THREADS" in os.environ or Path(".numba_config.yaml").exists():
        from mpsref_cpu.threads import thread_count

        threads = thread_count()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


def _unavailable() -> str | None:
    with importing:
        is_missing = find_spec("numba") is None
    if is_missing:
        return "numba is not installed: pip install numba"
    if os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0"):
        return None
    return "NUMBA_DISABLE_JIT is set, and the kernels of the cpu backend are compiled by numba: unset it"


backend = Backend(
    "cpu", LazyImplementations(__name__, _in_float32), unavailable=_unavailable, device=_device,
    rules=("functions within 2 units",),
)  # fmt: skip
