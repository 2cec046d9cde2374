from __future__ import annotations

from mpsref import CropAndResizeBilinear
from mpsref_jax.interpolation import forward

IMPLEMENTATIONS = {(CropAndResizeBilinear, "forward"): forward}
