"""Max pooling through ``msl/pooling_max.metal``."""

from __future__ import annotations

from mpsref import PoolingMax
from mpsref_metal.pooling import forward_of, max_gradient

IMPLEMENTATIONS = {
    (PoolingMax, "forward"): forward_of("pooling_max"),
    (PoolingMax, "gradient"): max_gradient,
}
