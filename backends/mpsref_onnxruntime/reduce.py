from __future__ import annotations

from typing import Any

from onnx import TensorProto

from mpsref import Reduce
from mpsref.arguments.arrays import Array
from mpsref_onnxruntime.run import Graph, evaluate, floats, integers

AXES = {"row": [3], "column": [2], "featurechannels": [1], "spatial": [2, 3]}
OPERATORS = {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "min": "ReduceMin",
    "max": "ReduceMax",
    "argumentmin": "ArgMin",
    "argumentmax": "ArgMax",
}


def forward(problem: Any, x: Array, out: Array) -> None:
    spec, operator, axes = problem.spec, OPERATORS[problem.spec.operation], AXES[problem.spec.over]

    def reduce(graph: Graph, x: str) -> str:
        if operator.startswith("Arg"):
            return graph("Cast", graph(operator, x, axis=axes[0]), to=TensorProto.FLOAT)
        found = graph(operator, x, integers(*axes))
        return graph("Mul", found, floats(spec.weight)) if spec.weight != 1 else found

    out[...] = evaluate(problem, reduce, problem.part(x))


IMPLEMENTATIONS = {(Reduce, "forward"): forward}
