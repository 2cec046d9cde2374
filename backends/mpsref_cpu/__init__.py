"""The cpu backend: numba kernels on NumPy arrays.

An implementation is a function ``(problem, *inputs, out)``. It takes per-axis tables from the problem and fills
``out``; :mod:`mpsref_cpu.pooling.pooling_average` is the model. A family is imported when one of its kernels is first
used, from the file with the name of its module in ``mpsref.kernels``.
"""

from mpsref import Backend
from mpsref.backend import LazyImplementations
from mpsref_cpu.threads import thread_count

__all__ = ["backend"]


def _device() -> str:
    threads = thread_count()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


backend = Backend("cpu", LazyImplementations(__name__), device=_device, rules=("functions within 2 units",))
