from __future__ import annotations

from typing import Any

from mpsref import Slice
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_onnxruntime.run import Graph, evaluate, integers

AXES = integers(2, 3, 1)


def forward(problem: Any, x: Array, out: Array) -> None:
    """Cut out the part inside the image, and put zeros around it."""
    begins, ends, before, after = [], [], [], []
    for offset, size, length in zip(problem.spec.offset, problem.part_shape[1:], problem.source_shape[1:], strict=True):
        begin, end = max(offset, 0), min(offset + size, length)
        if begin >= end:
            raise UnsupportedError("the slice has no pixel of the image")
        begins.append(begin)
        ends.append(end)
        before.append(begin - offset)
        after.append(offset + size - end)

    def cut(graph: Graph, x: str) -> str:
        part = graph("Slice", x, integers(*begins), integers(*ends), AXES)
        return graph("Pad", part, integers(*before, *after), "", AXES) if any(before + after) else part

    out[...] = evaluate(problem, cut, x)


IMPLEMENTATIONS = {(Slice, "forward"): forward}
