from __future__ import annotations

from typing import Any

from mpsref import FullyConnected
from mpsref.arguments.arrays import Array
from mpsref_onnxruntime.neuron import activated
from mpsref_onnxruntime.run import Graph, evaluate, integers


def forward(problem: Any, x: Array, weights: Array, *biases: Array, out: Array) -> None:
    def layer(graph: Graph, x: str, weights: str, *biases: str) -> str:
        y = graph("Gemm", graph("Flatten", x), graph("Flatten", weights), *biases, transB=1)
        return activated(graph, problem.spec.neuron, graph("Unsqueeze", y, integers(2, 3)))

    out[...] = evaluate(problem, layer, x, weights, *biases)


IMPLEMENTATIONS = {(FullyConnected, "forward"): forward}
