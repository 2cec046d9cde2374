from __future__ import annotations

import math
from typing import Any

from mpsref import Arithmetic
from mpsref.arguments.arrays import Array
from mpsref_torch.run import Function, Tensor, Torch, like

NAMES = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div"}


def part(operand: Any, image: Tensor) -> Tensor:
    """Return the elements of an operand that are read, in the length 1 where one is repeated."""
    y, x, c = (slice(o, None if t else o + 1) for t, o in zip(operand.strides, operand.offset, strict=True))
    return image[:, c, y, x]


def _function(torch: Torch, problem: Any) -> Function:
    spec, combine = problem.spec, getattr(torch.torch, NAMES[problem.spec.operation])
    low, high = (bound if math.isfinite(bound) else None for bound in (spec.minimum_value, spec.maximum_value))

    def arithmetic(x: Tensor, y: Tensor) -> Tensor:
        first, second = (part(operand, image) for operand, image in zip(spec.operands, (x, y), strict=True))
        r = combine(spec.primary_scale * first, spec.secondary_scale * second) + spec.bias
        return torch.torch.clamp(r, low, high) if low is not None or high is not None else r

    return arithmetic


def forward(torch: Torch, problem: Any, x: Array, y: Array, out: Array) -> None:
    out[...] = torch(_function(torch, problem), x, y)


def gradient(torch: Torch, problem: Any, g: Array, *operands: Array, out: Any) -> None:
    given = dict(zip(problem.reads, operands, strict=True))
    shapes = problem.source_shape, problem.secondary_shape
    found = torch.gradients(_function(torch, problem), [given.get(k, like(g, shapes[k])) for k in (0, 1)], g, count=2)
    for target, k in zip(out if isinstance(out, tuple) else (out,), problem.of, strict=True):
        target[...] = found[k]


IMPLEMENTATIONS = {(Arithmetic, "forward"): forward, (Arithmetic, "gradient"): gradient}
