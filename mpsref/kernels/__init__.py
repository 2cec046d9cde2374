"""The kernels: one file a family, with its frozen spec, its formulas in NumPy, and what bounds their error."""

from itertools import chain
from types import ModuleType

from mpsref import registry
from mpsref.kernels import pooling_average, pooling_l2norm, pooling_max
from mpsref.kernels.pooling_average import PoolingAverage
from mpsref.kernels.pooling_l2norm import PoolingL2Norm
from mpsref.kernels.pooling_max import PoolingMax
from mpsref.kernels.reference import Formula, Terms, backends_of
from mpsref.registry import OperationKey

__all__ = ["REFERENCE", "SPECS", "TERMS", "PoolingAverage", "PoolingL2Norm", "PoolingMax", "Terms"]

FAMILIES: tuple[ModuleType, ...] = (pooling_average, pooling_max, pooling_l2norm)

SPECS: tuple[type[registry.Spec], ...] = tuple(chain.from_iterable(family.SPECS for family in FAMILIES))
"""Every kernel there is, in the order in which reports list them."""

REFERENCE: dict[OperationKey, Formula] = {key: f for family in FAMILIES for key, f in family.REFERENCE.items()}
TERMS: dict[OperationKey, Formula] = {key: f for family in FAMILIES for key, f in family.TERMS.items()}

for _backend in backends_of(REFERENCE):
    registry._registered[_backend.name] = _backend  # register() would look entry points up, at import
