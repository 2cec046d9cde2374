from __future__ import annotations

from typing import Any

from mpsref import Arithmetic
from mpsref.arguments.arrays import Array
from mpsref_onnxruntime.run import Graph, evaluate, floats

OPERATORS = {"add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div"}


def forward(problem: Any, x: Array, y: Array, out: Array) -> None:
    spec = problem.spec
    first, second = (operand.part(image) for operand, image in zip(spec.operands, (x, y), strict=True))

    def arithmetic(graph: Graph, x: str, y: str) -> str:
        scaled = graph("Mul", x, floats(spec.primary_scale)), graph("Mul", y, floats(spec.secondary_scale))
        r = graph("Add", graph(OPERATORS[spec.operation], *scaled), floats(spec.bias))
        return graph("Clip", r, floats(spec.minimum_value), floats(spec.maximum_value)) if spec.clamps else r

    out[...] = evaluate(problem, arithmetic, first, second)


IMPLEMENTATIONS = {(Arithmetic, "forward"): forward}
