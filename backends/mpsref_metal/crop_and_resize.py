"""Bilinear resize of a box through ``msl/interpolation.metal``; outputs outside the image are zero."""

from __future__ import annotations

from mpsref.kernels.crop_and_resize import CropAndResizeBilinear
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.upsampling import forward

IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(CropAndResizeBilinear, "forward"): forward}
