from __future__ import annotations

from typing import Any

from mpsref import Concatenation
from mpsref.arguments.arrays import Array
from mpsref_onnxruntime.run import Graph, evaluate, integers


def forward(problem: Any, *xs: Array, out: Array) -> None:
    rests = [problem.spec.aligned(c) - c for c in problem.channels]

    def concatenate(graph: Graph, *names: str) -> str:
        whole = [
            graph("Pad", x, integers(0, rest), "", integers(1)) if rest else x
            for x, rest in zip(names, rests, strict=True)
        ]
        return graph("Concat", *whole, axis=1)

    out[...] = evaluate(problem, concatenate, *xs)


IMPLEMENTATIONS = {(Concatenation, "forward"): forward}
