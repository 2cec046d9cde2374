"""Planted faults of the neurons: other formulas, parameters mistaken or left out, other values at kinks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import Fault, of_problem, of_result, with_spec
from mpsref.kernels import Neuron
from mpsref.kernels.neuron import slope, value
from mpsref.registry import Operation

__all__ = ["faults"]

Table = dict[str, Callable[..., None]]


def for_type(kinds: str, formula: Callable[[Neuron, Array], Array]) -> Callable[..., None]:
    """Compute ``formula(neuron, x)`` for the value, or g times it for the gradient, of some types; be right else."""

    def spoil(result: Array, problem: Any, *inputs: Array) -> Array | None:
        if problem.spec.type not in kinds.split():
            return None
        *g, x = (array.astype(np.float64) for array in inputs)
        with np.errstate(all="ignore"):
            found = formula(problem.spec, x)
        return g[0] * found if g else found

    return of_result(spoil)


def _with(*kinds: str, **changes: Callable[[Any], Any]) -> Callable[..., None]:
    """Take other parameters for some types."""
    change = with_spec(**changes)
    return of_problem(lambda problem: change(problem) if problem.spec.type in kinds else problem)


def _parameters() -> Table:
    """Mistakes in what the parameters mean, which the value and the slope can share."""
    return {
        "a is ignored": _with("relu", "linear", "tanh", "softplus", "elu", "exponential", a=lambda spec: 1.0),
        "b is ignored": _with("linear", "hardsigmoid", "exponential", b=lambda spec: 0.0),
        "b does not scale the argument": _with("tanh", "softplus", b=lambda spec: 1.0),
        "a and b are swapped": _with(
            "linear", "tanh", "softplus", "hardsigmoid", a=lambda spec: spec.b, b=lambda spec: spec.a
        ),
        "the base c is ignored": _with("exponential", "logarithm", c=lambda spec: -1.0),
        "c = -1 means base 2": _with("exponential", "logarithm", c=lambda spec: 2.0 if spec.c == -1 else spec.c),
        "every channel takes the first slope": _with("prelu", data=lambda spec: (spec.data[0],) * len(spec.data)),
        "the slopes are read backwards": _with("prelu", data=lambda spec: spec.data[::-1]),
    }


def _relu(n: Neuron, x: Array) -> Array:
    return np.where(x >= 0, x, n.a * x)


def _tanh_gelu(n: Neuron, x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def _values() -> Table:
    return {
        "GeLU by its tanh approximation": for_type("gelu", _tanh_gelu),
        "GeLU by a sigmoid": for_type("gelu", lambda n, x: x / (1 + np.exp(-1.702 * x))),
        "ELU without brackets": for_type("elu", lambda n, x: np.where(x >= 0, x, n.a * np.exp(np.minimum(x, 0)) - 1)),
        "ReLUN is not clamped": for_type("relun", _relu),
        "ReLUN is clamped from below": for_type("relun", lambda n, x: np.maximum(_relu(n, x), n.b)),
        "hard sigmoid reaches down to -1": for_type("hardsigmoid", lambda n, x: np.clip(n.a * x + n.b, -1, 1)),
        "softsign without the magnitude": for_type("softsign", lambda n, x: x / (1 + x * x)),
        "softplus adds a": for_type("softplus", lambda n, x: n.a + np.log1p(np.exp(n.b * x))),
        "a power keeps the sign": for_type("power", lambda n, x: np.sign(n.a * x + n.b) * abs(n.a * x + n.b) ** n.c),
        "sigmoid of twice the argument": for_type("sigmoid", lambda n, x: 0.5 + 0.5 * np.tanh(x)),
    }


def _steps(n: Neuron, x: Array, at_zero: Callable[[Neuron], Any]) -> Array:
    a: Any = n.a if n.data is None else np.array(n.data)
    below = a * np.exp(np.minimum(x, 0)) if n.type == "elu" else a
    return np.where(x > 0, 1.0, np.where(x == 0, at_zero(n), below))


def _gelu_as_printed(n: Neuron, x: Array) -> Array:
    """Apple's formula, read literally: a bracket is missing, and the second term is twice the right one."""
    density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return slope(n, x) + x * density


def _slopes() -> Table:
    kinked = "relu prelu elu"
    return {
        "the slope at 0 is that below": for_type(
            kinked, lambda n, x: _steps(n, x, lambda m: m.a if m.data is None else np.array(m.data))
        ),
        "the slope at 0 is 0": for_type(kinked, lambda n, x: _steps(n, x, lambda m: 0.0)),
        "the slope of the magnitude at 0 is 1": for_type("absolute", lambda n, x: np.where(x >= 0, 1.0, -1.0)),
        "ReLUN has the slope b above its clamp": for_type(
            "relun", lambda n, x: np.where(_relu(n, x) >= n.b, n.b, np.where(x >= 0, 1.0, n.a))
        ),
        "ReLUN still rises at its clamp": for_type(
            "relun", lambda n, x: np.where(_relu(n, x) > n.b, 0.0, np.where(x >= 0, 1.0, n.a))
        ),
        "hard sigmoid is flat at its ends": for_type(
            "hardsigmoid", lambda n, x: np.where((n.a * x + n.b > 0) & (n.a * x + n.b < 1), n.a, 0.0)
        ),
        "hard sigmoid rises for x from 0 to 1": for_type(
            "hardsigmoid", lambda n, x: np.where((x >= 0) & (x <= 1), n.a, 0.0)
        ),
        "GeLU's slope as it is printed": for_type("gelu", _gelu_as_printed),
        "x is taken for the result": for_type("sigmoid tanh", lambda n, x: n.a * n.b - x * x if n.a else x * (1 - x)),
        "the chain rule is forgotten": for_type(
            "tanh softplus", lambda n, x: np.where(n.b == 0, 0.0, slope(n, x) / (n.b or 1.0))
        ),
        "the slope of a logarithm lacks ln(c)": _with("logarithm", c=lambda spec: -1.0),
        "the slope of a power lacks c": for_type("power", lambda n, x: n.a * (n.a * x + n.b) ** (n.c - 1)),
        "the slope of softsign is not squared": for_type("softsign", lambda n, x: 1 / (1 + abs(x))),
        "the slope is the value": for_type("gelu sigmoid softsign elu", value),
        "g and x are swapped": of_result(lambda result, problem, g, x: x * slope(problem.spec, g.astype(np.float64))),
        "g is ignored": of_result(lambda result, problem, g, x: slope(problem.spec, x.astype(np.float64))),
    }


def _sums() -> Table:
    def summed(terms: Callable[[Array, Array], Array]) -> Callable[..., None]:
        return of_result(lambda result, problem, g, x: terms(g.astype(np.float64), x.astype(np.float64)).sum((0, 1, 2)))

    return {
        "the sum is over positive values": summed(lambda g, x: np.where(x > 0, g * x, 0)),
        "the sum is over all values": summed(lambda g, x: g * x),
        "x is left out": summed(lambda g, x: np.where(x < 0, g, 0)),
        "g is left out": summed(lambda g, x: np.where(x < 0, x, 0)),
        "the magnitude of x is taken": summed(lambda g, x: np.where(x < 0, -g * x, 0)),
        "the mean is taken": summed(lambda g, x: np.where(x < 0, g * x, 0) / g[..., 0].size),
        "only the first image counts": summed(lambda g, x: np.where(x < 0, g * x, 0)[:1]),
        "the last row is left out": summed(lambda g, x: np.where(x < 0, g * x, 0)[:, :-1]),
        "the slope itself is a factor": of_result(lambda result, problem, *_: result * np.array(problem.spec.data)),
        "channels in reverse": of_result(lambda result, *_: result[::-1].copy()),
        "the sum over all channels": of_result(lambda result, *_: np.full_like(result, result.sum())),
    }


def faults() -> Iterator[Fault]:
    """Yield the mistakes of this family."""
    tables: Mapping[str, Table] = {
        "forward": _parameters() | _values(),
        "gradient": _parameters() | _slopes(),
        "parameter_gradient": _sums(),
    }
    for method, table in tables.items():
        for name, run in table.items():
            yield Fault(name, Operation(Neuron, method), run)
