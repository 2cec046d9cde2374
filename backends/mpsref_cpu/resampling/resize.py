"""Resize of MPS and of MPSGraph: the weighted sums and the copies of upsampling at other positions."""

from __future__ import annotations

from mpsref.kernels.resize import GraphResizeBilinear, GraphResizeNearest, ResizeBilinear
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.resampling.upsampling import bilinear, gradient, nearest

IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (ResizeBilinear, "forward"): bilinear,
    (GraphResizeBilinear, "forward"): bilinear,
    (GraphResizeBilinear, "gradient"): gradient,
    (GraphResizeNearest, "forward"): nearest,
    (GraphResizeNearest, "gradient"): gradient,
}
