from __future__ import annotations

from typing import Any

from mpsref import Concatenation
from mpsref.arguments.arrays import Array
from mpsref_torch.run import Function, Tensor, Torch, like


def _function(torch: Torch, problem: Any) -> Function:
    """Return the concatenation of sources whose channels are padded to a multiple."""
    rests = [problem.spec.aligned(c) - c for c in problem.channels]
    pad = torch.functional.pad

    def concatenate(*images: Tensor) -> Tensor:
        whole = [pad(x, (0, 0, 0, 0, 0, rest)) if rest else x for x, rest in zip(images, rests, strict=True)]
        return torch.torch.cat(whole, 1)

    return concatenate


def forward(torch: Torch, problem: Any, *xs: Array, out: Array) -> None:
    out[...] = torch(_function(torch, problem), *xs)


def gradient(torch: Torch, problem: Any, g: Array, out: Any) -> None:
    sources = [like(g, shape) for shape in problem.source_shapes]
    found = torch.gradients(_function(torch, problem), sources, g, count=len(sources))
    for target, dx in zip(out if isinstance(out, tuple) else (out,), found, strict=True):
        target[...] = dx


IMPLEMENTATIONS = {(Concatenation, "forward"): forward, (Concatenation, "gradient"): gradient}
