"""The cpu backend: numba kernels on NumPy arrays, one module a kernel family, as in ``mpsref.kernels``.

An implementation is a function ``(problem, *inputs, out)``. It asks the problem for its per-axis tables and fills
``out``; see :mod:`mpsref_cpu.pooling_average` for the model. A family is imported when it is first used.
"""

from mpsref import Backend
from mpsref.deferred import Deferred
from mpsref.kernels import FAMILIES
from mpsref_cpu.parallel import thread_count

__all__ = ["backend"]


def _device() -> str:
    threads = thread_count()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


backend = Backend("cpu", Deferred(__name__, FAMILIES), device=_device)
