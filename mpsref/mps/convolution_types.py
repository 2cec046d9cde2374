"""The enumerations of the convolution classes. Source: ``MPSCNNConvolution.h``, ``MPSNeuralNetworkTypes.h`` [doc]."""

from __future__ import annotations

import enum
from typing import Any

from mpsref.arguments.parameters import integer
from mpsref.mps.core.types import Enumeration, member

__all__ = [
    "MPSCNNConvolutionGradientOption",
    "MPSCNNConvolutionWeightsLayout",
    "MPSCNNWeightsQuantizationType",
    "MPSNNConvolutionAccumulatorPrecisionOption",
    "gradient_option",
    "precision",
    "quantization_type",
    "weights_layout",
]


class MPSCNNConvolutionWeightsLayout(Enumeration):
    """The order of the weights in memory; there is one: output channel, row, column, input channel of the group."""

    OHWI = 0


class MPSCNNWeightsQuantizationType(Enumeration):
    """What 8-bit weights stand for: nothing, a fraction of a range for each output channel, or a place in a table."""

    NONE = 0
    Linear = 1
    LookupTable = 2


class MPSNNConvolutionAccumulatorPrecisionOption(Enumeration):
    """What products are added up in. It is stored and has no effect: sums are always taken in full precision [choice].

    Half precision would depend on the order of summation, which is not documented, and Apple may ignore it too [doc].
    """

    Half = 0
    Float = 1


class MPSCNNConvolutionGradientOption(enum.IntFlag):
    """Which gradients a gradient kernel computes."""

    GradientWithData = 1
    GradientWithWeightsAndBias = 2
    All = 3


def weights_layout(name: str, value: Any) -> MPSCNNConvolutionWeightsLayout:
    """Return ``value`` as a layout of weights; errors are those of :func:`mpsref.mps.core.types.member`."""
    return member(name, value, MPSCNNConvolutionWeightsLayout)


def quantization_type(name: str, value: Any) -> MPSCNNWeightsQuantizationType:
    """Return ``value`` as a quantization of weights; errors are those of :func:`mpsref.mps.core.types.member`."""
    return member(name, value, MPSCNNWeightsQuantizationType)


def precision(name: str, value: Any) -> MPSNNConvolutionAccumulatorPrecisionOption:
    """Return ``value`` as an accumulator precision; errors are those of :func:`mpsref.mps.core.types.member`."""
    return member(name, value, MPSNNConvolutionAccumulatorPrecisionOption)


def gradient_option(name: str, value: Any) -> MPSCNNConvolutionGradientOption:
    """Return ``value`` as a gradient option: a member, its number, its name in lower case, or an "or" of members.

    Raises ``ValueError`` for what is none, ``TypeError`` for another type.

    >>> gradient_option("gradient_option", "all") == gradient_option("gradient_option", 3)
    True
    >>> gradient_option("gradient_option", 0)
    Traceback (most recent call last):
    ValueError: gradient_option is 0; it must be GradientWithData (1), GradientWithWeightsAndBias (2) or All (3)
    """
    members = MPSCNNConvolutionGradientOption.__members__
    found = next((one for word, one in members.items() if word.lower() == value), None)
    if isinstance(value, enum.Enum) and not isinstance(value, MPSCNNConvolutionGradientOption):
        raise TypeError(f"{name} is {value!r}; it must be an MPSCNNConvolutionGradientOption")
    if found is None and not isinstance(value, str):
        number = integer(name, value)
        found = next((one for one in members.values() if one == number), None)
    if found is None:
        choices = [f"{word} ({int(one)})" for word, one in members.items()]
        raise ValueError(f"{name} is {value!r}; it must be {', '.join(choices[:-1])} or {choices[-1]}")
    return found
