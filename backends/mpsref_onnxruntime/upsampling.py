from __future__ import annotations

from typing import Any

from mpsref import UpsamplingBilinear, UpsamplingNearest
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_onnxruntime.interpolation import resized


def nearest(problem: Any, x: Array, out: Array) -> None:
    resized(problem, x, out, "nearest", "asymmetric")


def bilinear(problem: Any, x: Array, out: Array) -> None:
    spec = problem.spec
    if spec.edge_mode == "zero" and not spec.align_corners and spec.factors != (1, 1):
        raise UnsupportedError('edge_mode is "zero"; Resize of ONNX holds the last pixel behind it')
    resized(problem, x, out, "linear", "align_corners" if spec.align_corners else "asymmetric")


IMPLEMENTATIONS = {(UpsamplingNearest, "forward"): nearest, (UpsamplingBilinear, "forward"): bilinear}
