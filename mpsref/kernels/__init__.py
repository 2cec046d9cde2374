"""The kernels: one file a family, with its frozen spec, its formulas in NumPy, and what bounds their error."""

from mpsref import registry
from mpsref.kernels import pooling_average, pooling_l2norm, pooling_max
from mpsref.kernels.pooling_average import PoolingAverage
from mpsref.kernels.pooling_l2norm import PoolingL2Norm
from mpsref.kernels.pooling_max import PoolingMax
from mpsref.kernels.reference import Terms, backends_of

__all__ = ["REFERENCE", "SPECS", "TERMS", "PoolingAverage", "PoolingL2Norm", "PoolingMax", "Terms"]

SPECS: tuple[type[registry.Spec], ...] = (PoolingAverage, PoolingMax, PoolingL2Norm)
"""Every kernel there is, in the order in which reports list them."""

REFERENCE = {**pooling_average.REFERENCE, **pooling_max.REFERENCE, **pooling_l2norm.REFERENCE}
TERMS = {**pooling_average.TERMS, **pooling_max.TERMS, **pooling_l2norm.TERMS}

for _backend in backends_of(REFERENCE):
    registry._registered[_backend.name] = _backend  # register() would look entry points up, at import
