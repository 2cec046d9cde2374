"""The functions of the neurons: each one's value, its derivative, where it is finite, and how far rounding may reach.

Each is evaluated so that nothing overflows on the way, and NaN in gives NaN out, but for the constant derivatives of
"none" and "linear". At a kink the derivative has the value that Apple documents; where Apple is silent or contradicts
itself, ReLUN is flat from its clamp on [math], and Absolute has the derivative 0 at 0 [choice].

Source: ``MPSCNNNeuronType.h``, ``MPSCNNNeuron.h``: functions and derivatives [doc], that of GeLU [math].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.reference import gamma

if TYPE_CHECKING:
    from mpsref.kernels.neuron import Neuron


class Curve(NamedTuple):
    """A function of one value and its derivative.

    Both take the neuron, for its parameters, and the argument: ``u = a*x + b`` where the curve is ``affine``, else x.
    """

    value: Callable[[Neuron, Array], Array]
    slope: Callable[[Neuron, Array], Array]
    needs: Mapping[str, float] = {}
    """The parameters that the curve has, and their defaults."""
    affine: bool = False


def _tanh_slope(n: Neuron, x: Array) -> Array:
    z = np.exp(-2 * abs(n.b * x))  # 1 - tanh(b*x)**2 would cancel
    return np.asarray(n.a * n.b * 4 * z / (1 + z) ** 2)


def _sigmoid(x: Array) -> Array:
    z = np.exp(-abs(x))
    return np.asarray(np.where(x >= 0, 1.0, z) / (1 + z))


def _sigmoid_slope(n: Neuron, x: Array) -> Array:
    z = np.exp(-abs(x))
    return np.asarray(z / (1 + z) ** 2)


def _softplus(n: Neuron, x: Array) -> Array:
    u = n.b * x
    return n.a * np.asarray(np.maximum(u, 0) + np.log1p(np.exp(-abs(u))))


def _clamped(n: Neuron, x: Array) -> Array:
    """Return the derivative of ReLUN: 0 where the clamp is reached, whatever the sign of x."""
    return np.where(_relu(n.a, x) >= n.b, 0.0, _relu_slope(n.a, x))


def _relu(a: Any, x: Array) -> Array:
    return np.where(x >= 0, x, a * x)


def _relu_slope(a: Any, x: Array) -> Array:
    return np.where(x >= 0, 1.0, a)


def _power(u: Array, c: float) -> Array:
    return np.float_power(u, c)  # numpy.power takes a root where c is 0.5, which is another function at -inf


def _power_slope(n: Neuron, u: Array) -> Array:
    return n.a * n.c * _power(u, n.c - 1) if n.c else np.zeros_like(u)


def _log_base(n: Neuron) -> float:
    """Return ln(c), where c = -1 stands for the base e."""
    return 1.0 if n.c == -1 else math.log(n.c)


_erfc = np.vectorize(math.erfc, otypes=[np.float64])  # NumPy itself has none


def _normal(x: Array) -> Array:
    """Return the normal distribution's share below x, ``(1 + erf(x/sqrt(2))) / 2`` without its cancellation."""
    return 0.5 * np.asarray(_erfc(-x * math.sqrt(0.5)))


CURVES: Mapping[str, Curve] = {
    "none": Curve(lambda n, x: x, lambda n, x: np.ones_like(x)),
    "relu": Curve(lambda n, x: _relu(n.a, x), lambda n, x: _relu_slope(n.a, x), {"a": 0.0}),
    "linear": Curve(lambda n, u: u, lambda n, u: np.full_like(u, n.a), {"a": 1.0, "b": 0.0}, affine=True),
    "sigmoid": Curve(lambda n, x: _sigmoid(x), _sigmoid_slope),
    "hardsigmoid": Curve(
        lambda n, u: np.clip(u, 0, 1),
        lambda n, u: np.where((u >= 0) & (u <= 1), n.a, 0.0),
        {"a": 0.2, "b": 0.5},
        affine=True,
    ),
    "tanh": Curve(lambda n, x: n.a * np.tanh(n.b * x), _tanh_slope, {"a": 1.0, "b": 1.0}),
    "absolute": Curve(lambda n, x: abs(x), lambda n, x: np.sign(x)),
    "softplus": Curve(_softplus, lambda n, x: n.a * n.b * _sigmoid(n.b * x), {"a": 1.0, "b": 1.0}),
    "softsign": Curve(lambda n, x: x / (1 + abs(x)), lambda n, x: (1 / (1 + abs(x))) ** 2),
    "elu": Curve(
        lambda n, x: np.where(x >= 0, x, n.a * np.expm1(np.minimum(x, 0))),
        lambda n, x: np.where(x >= 0, 1.0, n.a * np.exp(np.minimum(x, 0))),
        {"a": 1.0},
    ),
    "prelu": Curve(
        lambda n, x: _relu(np.asarray(n.data, x.dtype), x),
        lambda n, x: _relu_slope(np.asarray(n.data, x.dtype), x),
    ),
    "relun": Curve(lambda n, x: np.minimum(_relu(n.a, x), n.b), _clamped, {"a": 1.0, "b": 6.0}),
    "power": Curve(lambda n, u: _power(u, n.c), _power_slope, {"a": 1.0, "b": 0.0, "c": 1.0}, affine=True),
    "exponential": Curve(
        lambda n, u: np.exp(u * _log_base(n)),
        lambda n, u: n.a * _log_base(n) * np.exp(u * _log_base(n)),
        {"a": 1.0, "b": 0.0, "c": -1.0},
        affine=True,
    ),
    "logarithm": Curve(
        lambda n, u: np.log(u) / _log_base(n),
        lambda n, u: n.a / (_log_base(n) * u),
        {"a": 1.0, "b": 0.0, "c": -1.0},
        affine=True,
    ),
    "gelu": Curve(
        lambda n, x: x * _normal(x),
        lambda n, x: _normal(x) + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi),
    ),
}
"""Every type of neuron, in the order of Apple's numbers."""

TYPES = tuple(CURVES)


def argument(neuron: Neuron, x: Array) -> Array:
    """Return what the curve of ``neuron`` is a function of: ``a*x + b`` or x itself."""
    return neuron.a * x + neuron.b if CURVES[neuron.type].affine else x


def value(neuron: Neuron, x: Array) -> Array:
    """Return f(x) in the dtype of ``x``, float of any width; the slopes of PReLU belong to the last axis.

    >>> from mpsref import Neuron
    >>> value(Neuron("relu", a=0.5), np.array([-2.0, 3.0])).tolist()
    [-1.0, 3.0]
    """
    return _evaluated(CURVES[neuron.type].value, neuron, x)


def slope(neuron: Neuron, x: Array) -> Array:
    """Return f'(x) in the dtype of ``x``, at a kink the value that the family's rules give it.

    >>> from mpsref import Neuron
    >>> slope(Neuron("relu", a=0.5), np.array([-2.0, 0.0])).tolist()
    [0.5, 1.0]
    """
    return _evaluated(CURVES[neuron.type].slope, neuron, x)


def _evaluated(curve: Callable[[Neuron, Array], Array], neuron: Neuron, x: Array) -> Array:
    # Infinity and NaN are right where they come out: beyond the range of the dtype, or of the function.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        found = np.asarray(curve(neuron, argument(neuron, x)), x.dtype)
    constant = curve is CURVES[neuron.type].slope and neuron.type in ("none", "linear")
    # A comparison with NaN is false, and NaN to the power of 0 is 1: neither says that something went wrong before.
    return found if constant else np.where(np.isnan(x), x, found)


def folded(neuron: Neuron, x: Array) -> Array:
    """Return numbers in [-8, 8] made from any: where a power or a logarithm is finite and its argument not tiny."""
    folded = np.fmod(x, 8)
    if neuron.type not in ("power", "logarithm") or neuron.a == 0:
        return folded
    u = 0.125 + abs(folded.astype(np.float64)) * (3.75 / 8)
    if neuron.type == "power" and neuron.c == int(neuron.c):
        u = np.where((folded == 0) & (neuron.c >= 0), 0.0, np.copysign(u, folded))
    return np.asarray((u - neuron.b) / neuron.a, x.dtype)


def error(neuron: Neuron, of: str, x: Array) -> Array:
    """Return how far a float32 result may be from the ``of`` ("value" or "slope") at ``x``, float64.

    The argument may move by a few roundings; the elementary functions may be off by what Metal's tables allow, which is
    relative to the value, but absolute where a difference from 1 is taken. Derived from these tables [math, choice].
    """
    curve = getattr(CURVES[neuron.type], of)
    u = argument(neuron, x)
    reach = abs(neuron.a * x) + abs(neuron.b) if CURVES[neuron.type].affine else abs(x)
    with np.errstate(all="ignore"):
        at, below, above = (curve(neuron, u + gamma(6) * sign * reach) for sign in (0, -1, 1))
        moved = np.maximum(abs(below - at), abs(above - at))
    absolute = {"softplus": abs(neuron.a), "elu": abs(neuron.a)} if of == "value" else {}
    return np.asarray(moved + gamma(40) * abs(at) + gamma(16) * ({"gelu": 1.0} | absolute).get(neuron.type, 0.0))
