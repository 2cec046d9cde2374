"""Max pooling through ``msl/pooling_max.metal``."""

from __future__ import annotations

from mpsref import PoolingMax
from mpsref_metal.pooling import max_forward, max_gradient

IMPLEMENTATIONS = {
    (PoolingMax, "forward"): max_forward,
    (PoolingMax, "gradient"): max_gradient,
}
