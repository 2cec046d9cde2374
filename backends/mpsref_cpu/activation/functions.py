"""Activation functions and their slopes for compiled code.

:func:`compiled_form` converts a neuron to a named tuple of its parameters, whose class selects the function while
compiling. It is one argument of a kernel, for which :func:`value` and :func:`slope` evaluate it. Arithmetic is float32
without branches, so that LLVM vectorizes the loops; :mod:`mpsref_cpu.simd.elementary` has exp, log and their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mpsref.kernels.neuron import Neuron
from mpsref_cpu.compiling import generic, inlined
from mpsref_cpu.simd.elementary import exp, exp_below, expm1, log, log1p_below, normal, power, quotient, sigmoid, tanh

real: Any = np.float32

PERIOD = 256
"""Least number of slopes of PReLU, which are repeated so that loops over them are long."""

CompiledForm: TypeAlias = tuple[Any, ...]
"""An instance of one of the classes below."""


class Identity(NamedTuple):
    """``y = x``; also without a neuron."""


class Relu(NamedTuple):
    """``y = x`` above 0, and ``a*x`` below."""

    a: Any


class Linear(NamedTuple):
    """``y = a*x + b``."""

    a: Any
    b: Any


class Sigmoid(NamedTuple):
    """``y = 1 / (1 + e**-x)``."""


class Piecewise(NamedTuple):
    """``y = u``, clamped to [low, high], its slope 0 unless ``first <= u <= last``, u = left*x + b or right*x + b."""

    left: Any
    right: Any
    b: Any
    low: Any
    high: Any
    first: Any
    last: Any


class TanH(NamedTuple):
    """``y = a * tanh(b*x)``."""

    a: Any
    b: Any


class SoftPlus(NamedTuple):
    """``y = a * log(1 + e**(b*x))``."""

    a: Any
    b: Any


class SoftSign(NamedTuple):
    """``y = x / (1 + |x|)``."""


class Elu(NamedTuple):
    """``y = x`` above 0, and ``a * (e**x - 1)`` below."""

    a: Any


class Prelu(NamedTuple):
    """``y = x`` above 0, and ``slopes[channel] * x`` below."""

    slopes: Any
    """One for each channel, repeated up to :data:`PERIOD` and more."""


class Relu6(NamedTuple):
    """``y`` as for :class:`Relu`, at most ``b``; a >= 0 and b > 0, so nothing below 0 reaches the clamp."""

    a: Any
    b: Any


class Power(NamedTuple):
    """``y = (a*x + b)**exponent``, its slope ``gain * (a*x + b)**lower``."""

    a: Any
    b: Any
    gain: Any
    exponent: Any
    lower: Any


class Exponential(NamedTuple):
    """``y = e**(rate * (a*x + b))``, its slope ``gain`` times that."""

    a: Any
    b: Any
    rate: Any
    gain: Any


class Logarithm(NamedTuple):
    """``y = scale * log(a*x + b)``, its slope ``gain / (a*x + b)``."""

    a: Any
    b: Any
    scale: Any
    gain: Any


class Gelu(NamedTuple):
    """``y = x`` times the normal distribution at x."""


class ToThe0(NamedTuple):
    """Exponent 0."""


class ToThe1(NamedTuple):
    """Exponent 1."""


class ToThe2(NamedTuple):
    """Exponent 2."""


class ToThe3(NamedTuple):
    """Exponent 3."""


class ToTheMinus1(NamedTuple):
    """Exponent -1."""


class ToAny(NamedTuple):
    """Any exponent but 0; ``below`` is the sign of the powers of negative numbers, NaN where it is no integer."""

    exponent: Any
    below: Any


EXPONENTS = {0.0: ToThe0(), 1.0: ToThe1(), 2.0: ToThe2(), 3.0: ToThe3(), -1.0: ToTheMinus1()}


def _exponent(c: float) -> CompiledForm:
    below = np.nan if c != int(c) else -1 if c % 2 else 1
    return EXPONENTS[c] if c in EXPONENTS else ToAny(real(c), real(below))


@lru_cache(maxsize=256)
def compiled_form(neuron: Neuron | None) -> CompiledForm:
    """Return a neuron for compiled code; ``None`` is the identity."""
    if neuron is None:
        return Identity()
    a, b, c = real(neuron.a), real(neuron.b), neuron.c
    if neuron.data is not None:
        return Prelu(np.tile(np.array(neuron.data, np.float32), -(-PERIOD // len(neuron.data))))
    if neuron.type == "power":
        return Power(a, b, real(neuron.a * c), _exponent(c), _exponent(c - 1 if c else 0.0))
    if neuron.type in ("exponential", "logarithm"):
        rate = neuron.log_base
        if neuron.type == "exponential":
            return Exponential(a, b, real(rate), real(neuron.a * rate))
        return Logarithm(a, b, real(1 / rate), real(neuron.a / rate))
    if neuron.type == "relun" and a >= 0 and b > 0:
        return Relu6(a, b)
    if neuron.type in PIECEWISE:
        return Piecewise(*map(real, PIECEWISE[neuron.type](a, b)))
    simple = SIMPLE[neuron.type]
    form: CompiledForm = simple(*(a, b)[: len(simple._fields)])
    return form


FUSED = Identity, Relu, Relu6
"""Activations that other kernels evaluate in their loops. Each takes a compiled form of a kernel."""


def split(neuron: Neuron | None) -> tuple[CompiledForm, Neuron | None]:
    """Return the activation that another kernel evaluates in its loops, and the one that takes a pass of its own."""
    form = compiled_form(neuron)
    return (form, None) if isinstance(form, FUSED) else (Identity(), neuron)


SIMPLE: Mapping[str, Any] = {
    "none": Identity,
    "relu": Relu,
    "linear": Linear,
    "sigmoid": Sigmoid,
    "tanh": TanH,
    "softplus": SoftPlus,
    "softsign": SoftSign,
    "elu": Elu,
    "gelu": Gelu,
}
"""Types whose compiled form has the parameters unchanged."""

PIECEWISE: Mapping[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "hardsigmoid": lambda a, b: (a, a, b, 0, 1, 0, 1),
    "absolute": lambda a, b: (-1, 1, -0.0, -np.inf, np.inf, np.finfo(real).smallest_subnormal, np.inf),
    "relun": lambda a, b: (a, 1, -0.0, -np.inf, b, -np.inf, np.nextafter(b, real(-np.inf))),
}
"""The numbers of :class:`Piecewise`; to add -0.0 changes nothing."""


ZERO, ONE, TWO, FOUR = real(0), real(1), real(2), real(4)


@inlined
def _keeping_nan(x, found):
    """Return ``found``, and NaN where x is NaN, for which comparisons are false."""
    return x if x != x else found


@inlined
def _relu(a, x):
    return x if x >= ZERO else real(a * x)


@inlined
def _relu_step(a, x):
    return ONE if x >= ZERO else a


@inlined
def _relu_slope(a, x):
    return _keeping_nan(x, _relu_step(a, x))


@inlined
def _relu6_slope(n, x):
    return _keeping_nan(x, ZERO if x >= n.b else _relu_step(n.a, x))


@inlined
def _between(low, x, high):
    x = low if x < low else x
    return high if x > high else x


@inlined
def _piece(n, x):
    return real((n.right if x >= ZERO else n.left) * x + n.b)


@inlined
def _piecewise_slope(n, x):
    u, side = _piece(n, x), n.right if x >= ZERO else n.left
    return _keeping_nan(x, side if (u >= n.first) & (u <= n.last) else ZERO)


@inlined
def _sigmoid_slope(x):
    z = exp_below(-abs(x))
    t = quotient(ONE, real(ONE + z))
    return real(z * t * t)


@inlined
def _softplus(n, x):
    u = real(n.b * x)
    above = ZERO if u < ZERO else u  # NaN stays
    return real(n.a * real(above + log1p_below(exp_below(-abs(u)))))


@inlined
def _softsign_slope(x):
    t = quotient(ONE, real(ONE + abs(x)))
    return real(t * t)


@inlined
def _elu(a, x):
    below = real(a * expm1(x))
    return x if x >= ZERO else below


@inlined
def _elu_slope(a, x):
    below = real(a * exp_below(ZERO if x > ZERO else x))
    return ONE if x >= ZERO else below


@inlined
def _gelu_slope(x):
    distribution, density = normal(x)
    return real(distribution + x * density)


RAISED: Mapping[type, Callable[..., Any]] = {
    ToThe0: lambda exponent, u: _keeping_nan(u, ONE),
    ToThe1: lambda exponent, u: u,
    ToThe2: lambda exponent, u: real(u * u),
    ToThe3: lambda exponent, u: real(u * u * u),
    ToTheMinus1: lambda exponent, u: quotient(ONE, u),
    ToAny: lambda exponent, u: power(u, exponent.exponent, exponent.below),
}


VALUE: Mapping[type, Callable[..., Any]] = {
    Identity: lambda neuron, x, channel: x,
    Relu: lambda neuron, x, channel: _relu(neuron.a, x),
    Linear: lambda neuron, x, channel: real(neuron.a * x + neuron.b),
    Sigmoid: lambda neuron, x, channel: sigmoid(x),
    Piecewise: lambda neuron, x, channel: _between(neuron.low, _piece(neuron, x), neuron.high),
    TanH: lambda neuron, x, channel: real(neuron.a * tanh(real(neuron.b * x))),
    SoftPlus: lambda neuron, x, channel: _softplus(neuron, x),
    SoftSign: lambda neuron, x, channel: quotient(x, real(ONE + abs(x))),
    Elu: lambda neuron, x, channel: _elu(neuron.a, x),
    Prelu: lambda neuron, x, channel: _relu(neuron.slopes[np.uintp(channel)], x),
    Relu6: lambda neuron, x, channel: neuron.b if x > neuron.b else _relu(neuron.a, x),
    Power: lambda neuron, x, channel: _raised(neuron.exponent, real(neuron.a * x + neuron.b)),
    Exponential: lambda neuron, x, channel: exp(real(neuron.rate * real(neuron.a * x + neuron.b))),
    Logarithm: lambda neuron, x, channel: real(neuron.scale * log(real(neuron.a * x + neuron.b))),
    Gelu: lambda neuron, x, channel: real(x * normal(x)[0]),
}
SLOPE: Mapping[type, Callable[..., Any]] = {
    Identity: lambda neuron, x, channel: ONE,
    Relu: lambda neuron, x, channel: _relu_slope(neuron.a, x),
    Linear: lambda neuron, x, channel: neuron.a,
    Sigmoid: lambda neuron, x, channel: _sigmoid_slope(x),
    Piecewise: lambda neuron, x, channel: _piecewise_slope(neuron, x),
    TanH: lambda neuron, x, channel: real(real(FOUR * neuron.a * neuron.b) * _sigmoid_slope(real(TWO * neuron.b * x))),
    SoftPlus: lambda neuron, x, channel: real(real(neuron.a * neuron.b) * sigmoid(real(neuron.b * x))),
    SoftSign: lambda neuron, x, channel: _softsign_slope(x),
    Elu: lambda neuron, x, channel: _elu_slope(neuron.a, x),
    Prelu: lambda neuron, x, channel: _relu_slope(neuron.slopes[np.uintp(channel)], x),
    Relu6: lambda neuron, x, channel: _relu6_slope(neuron, x),
    Power: lambda neuron, x, channel: real(neuron.gain * _raised(neuron.lower, real(neuron.a * x + neuron.b))),
    Exponential: lambda neuron, x, channel: real(neuron.gain * exp(real(neuron.rate * real(neuron.a * x + neuron.b)))),
    Logarithm: lambda neuron, x, channel: quotient(neuron.gain, real(neuron.a * x + neuron.b)),
    Gelu: lambda neuron, x, channel: _gelu_slope(x),
}


@generic
def value(neuron, x, channel):
    """Return f(x), float32, of a pixel's ``channel`` >= 0; only PReLU looks at that."""
    return VALUE[neuron.instance_class]


@generic
def slope(neuron, x, channel):
    """Return f'(x), float32, of a pixel's ``channel`` >= 0."""
    return SLOPE[neuron.instance_class]


@generic
def _raised(exponent, u):
    """Return u to the power of an exponent."""
    return RAISED[exponent.instance_class]
