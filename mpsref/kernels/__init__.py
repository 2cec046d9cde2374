"""The kernels: one file a family, with its frozen spec, its formulas in NumPy, and what bounds their error."""

from mpsref import registry
from mpsref.kernels import pooling_average
from mpsref.kernels.pooling_average import PoolingAverage
from mpsref.kernels.reference import Terms, backends_of

__all__ = ["REFERENCE", "SPECS", "TERMS", "PoolingAverage", "Terms"]

SPECS: tuple[type[registry.Spec], ...] = (PoolingAverage,)
"""Every kernel there is, in the order in which reports list them."""

REFERENCE = {**pooling_average.REFERENCE}
TERMS = {**pooling_average.TERMS}

for _backend in backends_of(REFERENCE):
    registry.register(_backend)
