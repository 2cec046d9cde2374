from __future__ import annotations

from typing import Any

from mpsref import Convolution
from mpsref.arguments.arrays import Array
from mpsref_onnxruntime.neuron import activated
from mpsref_onnxruntime.run import Graph, evaluate
from mpsref_onnxruntime.windows import way


def forward(problem: Any, x: Array, weights: Array, *biases: Array, out: Array) -> None:
    found = way(problem)

    def layer(graph: Graph, *inputs: str) -> str:
        return activated(graph, problem.spec.neuron, graph("Conv", *inputs, **found.words.keywords))

    out[...] = found.words.crop(evaluate(problem, layer, found.source(x), weights, *biases))


IMPLEMENTATIONS = {(Convolution, "forward"): forward}
