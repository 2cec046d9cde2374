"""Max pooling through ``msl/pooling_max.metal``."""

from __future__ import annotations

from mpsref import PoolingMax
from mpsref_metal.pooling import forward_of, gradient_of

IMPLEMENTATIONS = {
    (PoolingMax, "forward"): forward_of("pooling_max"),
    (PoolingMax, "gradient"): gradient_of("pooling_max"),
}
