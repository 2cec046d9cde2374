"""L2-norm pooling through ``msl/pooling_l2norm.metal``."""

from __future__ import annotations

from mpsref import PoolingL2Norm
from mpsref_metal.pooling import forward_of, l2norm_gradient

IMPLEMENTATIONS = {
    (PoolingL2Norm, "forward"): forward_of("pooling_l2norm"),
    (PoolingL2Norm, "gradient"): l2norm_gradient,
}
