from __future__ import annotations

from typing import Any

from onnx import TensorProto

from mpsref import Compare
from mpsref.arguments.arrays import Array
from mpsref_onnxruntime.run import Graph, evaluate, floats

OPERATORS = {
    "less": "Less",
    "lessorequal": "LessOrEqual",
    "greater": "Greater",
    "greaterorequal": "GreaterOrEqual",
}


def forward(problem: Any, x: Array, y: Array, out: Array) -> None:
    spec = problem.spec
    first, second = (operand.part(image) for operand, image in zip(spec.operands, (x, y), strict=True))

    def compare(graph: Graph, x: str, y: str) -> str:
        if spec.comparison_type in OPERATORS:
            found = graph(OPERATORS[spec.comparison_type], x, y)
        else:
            found = graph("LessOrEqual", graph("Abs", graph("Sub", x, y)), floats(spec.threshold))
        if spec.comparison_type == "notequal":
            found = graph("Not", found)
        return graph("Cast", found, to=TensorProto.FLOAT)

    out[...] = evaluate(problem, compare, first, second)


IMPLEMENTATIONS = {(Compare, "forward"): forward}
