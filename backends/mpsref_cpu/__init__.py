"""The cpu backend: numba kernels on NumPy arrays, one module a kernel family, as in ``mpsref.kernels``.

An implementation is a function ``(problem, *inputs, out)``. It asks the problem for its per-axis tables and fills
``out``; see :mod:`mpsref_cpu.pooling_average` for the model.
"""

from mpsref import Backend
from mpsref_cpu import pooling_average, pooling_l2norm, pooling_max
from mpsref_cpu.parallel import thread_count

__all__ = ["backend"]


def _device() -> str:
    threads = thread_count()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


IMPLEMENTATIONS = {**pooling_average.IMPLEMENTATIONS, **pooling_max.IMPLEMENTATIONS, **pooling_l2norm.IMPLEMENTATIONS}

backend = Backend("cpu", IMPLEMENTATIONS, device=_device)
