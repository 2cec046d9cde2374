"""Neurons as the functions of PyTorch of these names; the others from its elementary functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mpsref import Neuron
from mpsref.arguments.arrays import Array
from mpsref_torch.run import Function, Torch


def _hard_sigmoid(torch: Torch, n: Neuron) -> Function:
    if (n.a, n.b) == (1 / 6, 0.5):
        return torch.functional.hardsigmoid  # type: ignore[no-any-return]
    return lambda x: torch.torch.clamp(n.a * x + n.b, 0, 1)


def _relun(torch: Torch, n: Neuron) -> Function:
    if n.a == 0 and n.b >= 0:
        return lambda x: torch.functional.hardtanh(x, 0.0, n.b)
    return lambda x: torch.torch.clamp(torch.functional.leaky_relu(x, n.a), max=n.b)


def _relu(torch: Torch, n: Neuron) -> Function:
    return torch.functional.relu if n.a == 0 else lambda x: torch.functional.leaky_relu(x, n.a)


def _exponential(torch: Torch, n: Neuron) -> Function:
    base = 1.0 if n.c == -1 else math.log(n.c)
    return lambda x: torch.torch.exp((n.a * x + n.b) * base)


def _logarithm(torch: Torch, n: Neuron) -> Function:
    base = 1.0 if n.c == -1 else math.log(n.c)
    return lambda x: torch.torch.log(n.a * x + n.b) / base


FUNCTIONS: Mapping[str, Callable[[Torch, Neuron], Function]] = {
    "none": lambda torch, n: lambda x: x * 1,
    "relu": _relu,
    "linear": lambda torch, n: lambda x: n.a * x + n.b,
    "sigmoid": lambda torch, n: torch.torch.sigmoid,
    "hardsigmoid": _hard_sigmoid,
    "tanh": lambda torch, n: lambda x: n.a * torch.torch.tanh(n.b * x),
    "absolute": lambda torch, n: torch.torch.abs,
    "softplus": lambda torch, n: lambda x: n.a * torch.functional.softplus(n.b * x),
    "softsign": lambda torch, n: torch.functional.softsign,
    "elu": lambda torch, n: lambda x: torch.functional.elu(x, n.a),
    "relun": _relun,
    "power": lambda torch, n: lambda x: torch.torch.pow(n.a * x + n.b, n.c),
    "exponential": _exponential,
    "logarithm": _logarithm,
    "gelu": lambda torch, n: torch.functional.gelu,
}


def function_of(torch: Torch, neuron: Neuron | None) -> Function:
    """Return the function of a neuron other than "prelu", or the identity."""
    return (lambda x: x) if neuron is None else FUNCTIONS[neuron.type](torch, neuron)


def slopes_of(problem: Any, x: Array) -> list[Array]:
    """Return the slopes of PReLU in a list, which is empty for another neuron."""
    data = problem.spec.data
    return [] if data is None else [np.array(data, x.dtype)]


def forward(torch: Torch, problem: Any, x: Array, out: Array) -> None:
    out[...] = torch(_function(torch, problem), x, *slopes_of(problem, x))


def gradient(torch: Torch, problem: Any, g: Array, x: Array, out: Array) -> None:
    out[...] = torch.gradient(_function(torch, problem), g, x, *slopes_of(problem, x))


def parameter_gradient(torch: Torch, problem: Any, g: Array, x: Array, out: Array) -> None:
    out[...] = torch.gradients(_function(torch, problem), [x, *slopes_of(problem, x)], g, count=2)[1]


def _function(torch: Torch, problem: Any) -> Function:
    return torch.functional.prelu if problem.spec.type == "prelu" else function_of(torch, problem.spec)


IMPLEMENTATIONS = {
    (Neuron, "forward"): forward,
    (Neuron, "gradient"): gradient,
    (Neuron, "parameter_gradient"): parameter_gradient,
}
