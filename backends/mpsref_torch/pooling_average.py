from __future__ import annotations

from typing import Any

from mpsref import PoolingAverage, frameworks
from mpsref.arguments.arrays import Array
from mpsref_torch.run import Torch, like
from mpsref_torch.windows import pooled, pooling_gradient, way


def forward(torch: Torch, problem: Any, x: Array, out: Array) -> None:
    found = way(problem)
    if not found.grown:
        return pooled(torch, problem, torch.functional.avg_pool2d, x, out)
    keywords = found.keywords | {"divisor_override": 1}
    sums = torch(lambda x: torch.functional.avg_pool2d(x, **keywords), found.copy(x))
    out[...] = frameworks.divided(problem, sums)
    return None


def gradient(torch: Torch, problem: Any, g: Array, out: Array) -> None:
    simple = frameworks.canonical(problem)
    if simple is None or not way(simple).grown:
        return pooling_gradient(torch, problem, torch.functional.avg_pool2d, g, None, out)
    found = way(simple)
    keywords = found.keywords | {"divisor_override": 1}
    g = frameworks.divided(simple, frameworks.counted(problem, g))
    x = found.copy(like(g, problem.source_shape))
    dx = torch.gradient(lambda x: torch.functional.avg_pool2d(x, **keywords), g, x)
    out[...] = problem.place(found.adjoint(dx))
    return None


IMPLEMENTATIONS = {(PoolingAverage, "forward"): forward, (PoolingAverage, "gradient"): gradient}
