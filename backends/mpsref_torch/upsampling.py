from __future__ import annotations

from typing import Any

from mpsref import UpsamplingBilinear, UpsamplingNearest
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_torch.run import Function, Torch, like


def _function(torch: Torch, problem: Any) -> Function:
    size = problem.large_shape[1:3]
    if isinstance(problem.spec, UpsamplingNearest):
        return lambda x: torch.functional.interpolate(x, size=size, mode="nearest")
    if not problem.spec.align_corners:
        raise UnsupportedError("without aligned corners PyTorch shifts the positions by half a pixel; MPS does not")
    return lambda x: torch.functional.interpolate(x, size=size, mode="bilinear", align_corners=True)


def forward(torch: Torch, problem: Any, x: Array, out: Array) -> None:
    out[...] = torch(_function(torch, problem), x)


def gradient(torch: Torch, problem: Any, g: Array, out: Array) -> None:
    out[...] = torch.gradient(_function(torch, problem), g, like(g, problem.source_shape))


IMPLEMENTATIONS = {
    (kind, method): function
    for kind in (UpsamplingNearest, UpsamplingBilinear)
    for method, function in (("forward", forward), ("gradient", gradient))
}
