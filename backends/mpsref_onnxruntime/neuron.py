"""Neurons as the operators of these names, or from elementary ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mpsref import Neuron
from mpsref.arguments.arrays import Array
from mpsref_onnxruntime.run import Graph, evaluate, floats


def _affine(graph: Graph, n: Neuron, x: str) -> str:
    return graph("Add", graph("Mul", x, floats(n.a)), floats(n.b))


def _base(n: Neuron) -> Array:
    return floats(1.0 if n.c == -1 else math.log(n.c))


def _scaled(operator: str) -> Callable[[Graph, Neuron, str], str]:
    """Return ``a f(b x)``."""
    return lambda graph, n, x: graph("Mul", graph(operator, graph("Mul", x, floats(n.b))), floats(n.a))


def _rectified(graph: Graph, n: Neuron, x: str) -> str:
    return graph("Relu", x) if n.a == 0 else graph("LeakyRelu", x, alpha=n.a)


OPERATORS: Mapping[str, Callable[[Graph, Neuron, str], str]] = {
    "none": lambda graph, n, x: graph("Identity", x),
    "relu": _rectified,
    "linear": _affine,
    "sigmoid": lambda graph, n, x: graph("Sigmoid", x),
    "hardsigmoid": lambda graph, n, x: graph("HardSigmoid", x, alpha=n.a, beta=n.b),
    "tanh": _scaled("Tanh"),
    "absolute": lambda graph, n, x: graph("Abs", x),
    "softplus": _scaled("Softplus"),
    "softsign": lambda graph, n, x: graph("Softsign", x),
    "elu": lambda graph, n, x: graph("Elu", x, alpha=n.a),
    "prelu": lambda graph, n, x: graph("PRelu", x, np.array(n.data, np.float32)[:, None, None]),
    "relun": lambda graph, n, x: graph("Clip", _rectified(graph, n, x), "", floats(n.b)),
    "power": lambda graph, n, x: graph("Pow", _affine(graph, n, x), floats(n.c)),
    "exponential": lambda graph, n, x: graph("Exp", graph("Mul", _affine(graph, n, x), _base(n))),
    "logarithm": lambda graph, n, x: graph("Div", graph("Log", _affine(graph, n, x)), _base(n)),
    "gelu": lambda graph, n, x: graph("Gelu", x),
}


def activated(graph: Graph, neuron: Neuron | None, x: str) -> str:
    """Add the nodes of a layer's neuron."""
    return x if neuron is None else OPERATORS[neuron.type](graph, neuron, x)


def forward(problem: Any, x: Array, out: Array) -> None:
    out[...] = evaluate(problem, lambda graph, x: activated(graph, problem.spec, x), x)


IMPLEMENTATIONS = {(Neuron, "forward"): forward}
