from __future__ import annotations

from typing import Any

from mpsref import ResizeBilinear
from mpsref.arguments.arrays import Array
from mpsref_onnxruntime.interpolation import resized


def forward(problem: Any, x: Array, out: Array) -> None:
    resized(problem, x, out, "linear", "align_corners" if problem.spec.align_corners else "asymmetric")


IMPLEMENTATIONS = {(ResizeBilinear, "forward"): forward}
