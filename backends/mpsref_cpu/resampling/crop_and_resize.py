"""Bilinear resize of a box: interpolation where the box lies on the image, zeros outside."""

from __future__ import annotations

from mpsref.kernels.crop_and_resize import CropAndResizeBilinear
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.resampling.upsampling import bilinear

IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(CropAndResizeBilinear, "forward"): bilinear}
