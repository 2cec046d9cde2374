from __future__ import annotations

from typing import Any

from mpsref import CropAndResizeBilinear
from mpsref.arguments.arrays import Array
from mpsref_onnxruntime.interpolation import resized


def forward(problem: Any, x: Array, out: Array) -> None:
    resized(problem, x, out, "linear", "tf_crop_and_resize", problem.spec.box)


IMPLEMENTATIONS = {(CropAndResizeBilinear, "forward"): forward}
