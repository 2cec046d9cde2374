from __future__ import annotations

from typing import Any

from mpsref import Reshape
from mpsref.arguments.arrays import Array
from mpsref_torch.run import Function, Torch, like


def _function(problem: Any) -> Function:
    n, height, width, c = problem.shape
    if problem.spec.element_order == "CHW":
        return lambda x: x.reshape(n, c, height, width)
    return lambda x: x.permute(0, 2, 3, 1).reshape(n, height, width, c).permute(0, 3, 1, 2)


def forward(torch: Torch, problem: Any, x: Array, out: Array) -> None:
    out[...] = torch(_function(problem), x)


def gradient(torch: Torch, problem: Any, g: Array, out: Array) -> None:
    out[...] = torch.gradient(_function(problem), g, like(g, problem.source_shape))


IMPLEMENTATIONS = {(Reshape, "forward"): forward, (Reshape, "gradient"): gradient}
