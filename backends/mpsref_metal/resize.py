"""Resize of MPS and of MPSGraph through ``msl/interpolation.metal``."""

from __future__ import annotations

from mpsref.kernels.resize import GraphResizeBilinear, GraphResizeNearest, ResizeBilinear
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.upsampling import forward, gradient

IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (ResizeBilinear, "forward"): forward,
    (GraphResizeBilinear, "forward"): forward,
    (GraphResizeBilinear, "gradient"): gradient,
    (GraphResizeNearest, "forward"): forward,
    (GraphResizeNearest, "gradient"): gradient,
}
