"""What compiled code is given of a neuron: a tuple of its parameters, whose class says which function it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mpsref.kernels.neuron import Neuron

__all__ = [
    "Absolute",
    "CompiledForm",
    "Elu",
    "Exponential",
    "Gelu",
    "HardSigmoid",
    "Identity",
    "Linear",
    "Logarithm",
    "Power",
    "Prelu",
    "Relu",
    "Relu6",
    "ReluN",
    "Sigmoid",
    "SoftPlus",
    "SoftSign",
    "TanH",
    "ToAny",
    "ToThe0",
    "ToThe1",
    "ToThe2",
    "ToThe3",
    "ToTheMinus1",
    "compiled_form",
]

real: Any = np.float32

PERIOD = 256
"""The slopes of PReLU are repeated to at least so many, so that loops over them are long."""

CompiledForm: TypeAlias = tuple[Any, ...]
"""An instance of one of the classes below: what compiled code needs to know of a neuron."""


class Identity(NamedTuple):
    """``y = x``; what no neuron is, too."""


class Relu(NamedTuple):
    """``y = x`` above 0, and ``a*x`` below."""

    a: Any


class Linear(NamedTuple):
    """``y = a*x + b``."""

    a: Any
    b: Any


class Sigmoid(NamedTuple):
    """``y = 1 / (1 + e**-x)``."""


class HardSigmoid(NamedTuple):
    """``y = a*x + b``, clamped to [0, 1]."""

    a: Any
    b: Any


class TanH(NamedTuple):
    """``y = a * tanh(b*x)``."""

    a: Any
    b: Any


class Absolute(NamedTuple):
    """``y = |x|``."""


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


class ReluN(NamedTuple):
    """``y`` as for :class:`Relu`, at most ``b``."""

    a: Any
    b: Any


class Relu6(NamedTuple):
    """``y`` as for :class:`ReluN`, a >= 0 and b > 0: then nothing below 0 reaches the clamp."""

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
    """``y = x`` times the normal distribution's share below x."""


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
    """Return what compiled code is given of a neuron, and for ``None`` that of the identity."""
    if neuron is None:
        return Identity()
    a, b, c = real(neuron.a), real(neuron.b), neuron.c
    if neuron.data is not None:
        return Prelu(np.tile(np.array(neuron.data, np.float32), -(-PERIOD // len(neuron.data))))
    if neuron.type == "power":
        return Power(a, b, real(neuron.a * c), _exponent(c), _exponent(c - 1 if c else 0.0))
    if neuron.type in ("exponential", "logarithm"):
        rate = 1.0 if c == -1 else math.log(c)
        if neuron.type == "exponential":
            return Exponential(a, b, real(rate), real(neuron.a * rate))
        return Logarithm(a, b, real(1 / rate), real(neuron.a / rate))
    simple = Relu6 if neuron.type == "relun" and a >= 0 and b > 0 else SIMPLE[neuron.type]
    form: CompiledForm = simple(*(a, b)[: len(simple._fields)])
    return form


SIMPLE: Mapping[str, Any] = {
    "none": Identity,
    "relu": Relu,
    "linear": Linear,
    "sigmoid": Sigmoid,
    "hardsigmoid": HardSigmoid,
    "tanh": TanH,
    "absolute": Absolute,
    "softplus": SoftPlus,
    "softsign": SoftSign,
    "elu": Elu,
    "relun": ReluN,
    "gelu": Gelu,
}
"""The types whose compiled form holds the parameters as they are."""
