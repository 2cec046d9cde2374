from __future__ import annotations

from typing import Any

from mpsref import Slice
from mpsref.arguments.arrays import Array
from mpsref_torch.run import Function, Torch, like


def _function(torch: Torch, problem: Any) -> Function:
    """Return the part inside the image, and zeros around it."""
    axes = []
    for offset, size, length in zip(problem.spec.offset, problem.part_shape[1:], problem.source_shape[1:], strict=True):
        begin, end = min(max(offset, 0), length), min(max(offset + size, 0), length)
        before = min(max(-offset, 0), size)
        axes.append((slice(begin, max(begin, end)), (before, size - before - max(end - begin, 0))))
    (y, rows), (x, columns), (c, channels) = axes
    return lambda image: torch.functional.pad(image[:, c, y, x], (*columns, *rows, *channels))


def forward(torch: Torch, problem: Any, x: Array, out: Array) -> None:
    out[...] = torch(_function(torch, problem), x)


def gradient(torch: Torch, problem: Any, g: Array, out: Array) -> None:
    out[...] = torch.gradient(_function(torch, problem), g, like(g, problem.source_shape))


IMPLEMENTATIONS = {(Slice, "forward"): forward, (Slice, "gradient"): gradient}
