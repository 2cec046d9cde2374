from __future__ import annotations

from typing import Any

import numpy as np

from mpsref import BatchNormalization
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_onnxruntime.neuron import activated
from mpsref_onnxruntime.run import Graph, evaluate, integers

PIXELS = integers(0, 2, 3)


def statistics(problem: Any, x: Array, *state: Array, out: tuple[Array, Array]) -> None:
    if problem.count:
        raise UnsupportedError("ONNX has no operator that merges the statistics of two batches")

    def mean(graph: Graph, x: str) -> str:
        return graph("ReduceMean", x, PIXELS, keepdims=0)

    def m2(graph: Graph, x: str) -> str:
        return graph("ReduceSumSquare", graph("Sub", x, graph("ReduceMean", x, PIXELS)), PIXELS, keepdims=0)

    out[0][...], out[1][...] = evaluate(problem, mean, x), evaluate(problem, m2, x)


def forward(problem: Any, *inputs: Array, out: Array) -> None:
    given, spec = problem.named(inputs), problem.spec
    gamma = np.ones_like(given.mean) if given.gamma is None else given.gamma
    beta = np.zeros_like(given.mean) if given.beta is None else given.beta

    def layer(graph: Graph, *names: str) -> str:
        return activated(graph, spec.neuron, graph("BatchNormalization", *names, epsilon=spec.epsilon))

    out[...] = evaluate(problem, layer, given.x, gamma, beta, given.mean, given.variance)


IMPLEMENTATIONS = {(BatchNormalization, "statistics"): statistics, (BatchNormalization, "forward"): forward}
