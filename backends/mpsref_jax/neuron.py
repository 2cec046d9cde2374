"""Neurons as functions of ``jax.nn`` and ``jax.numpy``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mpsref import Neuron
from mpsref_jax.run import Function, JaxArray, pullback


def _rectified(a: float) -> Function:
    return lambda x: jax.nn.relu(x) if a == 0 else jax.nn.leaky_relu(x, a)


def _relun(n: Neuron) -> Function:
    relu6 = (n.a, n.b) == (0, 6)
    return lambda x: jax.nn.relu6(x) if relu6 else jnp.minimum(_rectified(n.a)(x), n.b)


def _base(n: Neuron) -> float:
    return 1.0 if n.c == -1 else math.log(n.c)


FUNCTIONS: Mapping[str, Callable[[Neuron], Function]] = {
    "none": lambda n: lambda x: x,
    "relu": lambda n: _rectified(n.a),
    "linear": lambda n: lambda x: n.a * x + n.b,
    "sigmoid": lambda n: jax.nn.sigmoid,
    "hardsigmoid": lambda n: lambda x: jnp.clip(n.a * x + n.b, 0, 1),
    "tanh": lambda n: lambda x: n.a * jnp.tanh(n.b * x),
    "absolute": lambda n: jnp.abs,
    "softplus": lambda n: lambda x: n.a * jax.nn.softplus(n.b * x),
    "softsign": lambda n: jax.nn.soft_sign,
    "elu": lambda n: lambda x: jax.nn.elu(x, n.a),
    "relun": _relun,
    "power": lambda n: lambda x: jnp.power(n.a * x + n.b, n.c),
    "exponential": lambda n: lambda x: jnp.exp((n.a * x + n.b) * _base(n)),
    "logarithm": lambda n: lambda x: jnp.log(n.a * x + n.b) / _base(n),
    "gelu": lambda n: lambda x: jax.nn.gelu(x, approximate=False),
}


def _prelu(x: JaxArray, slopes: JaxArray) -> JaxArray:
    return jnp.where(x >= 0, x, slopes * x)


def function_of(neuron: Neuron | None) -> Function:
    """Return the function of a neuron, or the identity."""
    if neuron is None:
        return lambda x: x
    if neuron.data is not None:
        slopes = np.array(neuron.data, np.float32)
        return lambda x: _prelu(x, slopes)
    return FUNCTIONS[neuron.type](neuron)


def forward(problem: Any) -> Function:
    return function_of(problem.spec)


def gradient(problem: Any) -> Function:
    function = function_of(problem.spec)
    return lambda g, x: pullback(function, g, x)[0]


def parameter_gradient(problem: Any) -> Function:
    slopes = np.array(problem.spec.data, np.float32)
    return lambda g, x: pullback(lambda slopes: _prelu(x, slopes), g, slopes)[0]


IMPLEMENTATIONS = {
    (Neuron, "forward"): forward,
    (Neuron, "gradient"): gradient,
    (Neuron, "parameter_gradient"): parameter_gradient,
}
