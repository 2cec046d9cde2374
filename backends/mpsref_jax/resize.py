from __future__ import annotations

from mpsref import ResizeBilinear
from mpsref_jax.interpolation import forward

IMPLEMENTATIONS = {(ResizeBilinear, "forward"): forward}
