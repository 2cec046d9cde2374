from __future__ import annotations

from typing import Any

from mpsref import Reduce
from mpsref.arguments.arrays import Array
from mpsref_torch.run import Function, Torch, like

AXES = {"row": [3], "column": [2], "featurechannels": [1], "spatial": [2, 3]}
NAMES = {"sum": "sum", "mean": "mean", "min": "amin", "max": "amax", "argumentmin": "argmin", "argumentmax": "argmax"}


def _function(torch: Torch, problem: Any) -> Function:
    spec = problem.spec
    (y, x), (height, width) = problem.region
    reduction, axes = getattr(torch.torch, NAMES[spec.operation]), AXES[spec.over]
    if spec.operation.startswith("argument"):
        return lambda image: reduction(image[..., y : y + height, x : x + width], axes[0], keepdim=True).to(image.dtype)
    weight = spec.weight
    return lambda image: reduction(image[..., y : y + height, x : x + width], axes, keepdim=True) * weight


def forward(torch: Torch, problem: Any, x: Array, out: Array) -> None:
    out[...] = torch(_function(torch, problem), x)


def gradient(torch: Torch, problem: Any, g: Array, out: Array) -> None:
    out[...] = torch.gradient(_function(torch, problem), g, like(g, problem.source_shape))


IMPLEMENTATIONS = {(Reduce, "forward"): forward, (Reduce, "gradient"): gradient}
