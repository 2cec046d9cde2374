"""Descriptors of convolutions: kernel size, channels, strides, dilation, groups, and what follows the sum.

>>> descriptor = MPSCNNConvolutionDescriptor(3, 3, 8, 16, groups=2)
>>> descriptor.stride_in_pixels_x, descriptor.weights_shape
(1, (16, 3, 3, 4))
>>> MPSCNNDepthWiseConvolutionDescriptor(3, 3, 8, 16).weights_shape
(16, 3, 3)

A property is checked when it is set. What several of them must have in common is checked when a kernel is made, so that
they may be set in any order; and the kernel keeps a copy, so later changes have no effect on it.

Source: ``MPSCNNConvolution.h`` [doc]; when things are checked, and the copy [choice].
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import ShapeError
from mpsref.kernels import Neuron
from mpsref.mps.core.properties import Property, PropertyHolder, at_least, fix, initialize
from mpsref.mps.core.serialization import SecureCoding, secure_coding
from mpsref.mps.neuron import MPSCNNNeuronType, MPSNNNeuronDescriptor, neuron_descriptor

__all__ = [
    "InferenceBatchNormalization",
    "MPSCNNConvolutionDescriptor",
    "MPSCNNDepthWiseConvolutionDescriptor",
    "MPSCNNSubPixelConvolutionDescriptor",
]

FLT_MIN = float(np.finfo(np.float32).tiny)


@secure_coding(version=1, arguments=("mean", "variance", "gamma", "beta", "epsilon"))
@dataclass(frozen=True)
class InferenceBatchNormalization(SecureCoding):
    """A normalization that is folded into weights and biases when they are loaded; ``None`` is 0, 1, 1 and 0.

    >>> normalization = InferenceBatchNormalization((3.0,), (3.9999,), (2.0,), (1.0,), 1e-4)
    >>> w, b = normalization.folded(np.array([[1.0, 2, 3]]), np.array([0.5]))
    >>> w.round(9).tolist(), b.round(9).tolist()
    ([[1.0, 2.0, 3.0]], [-1.5])
    """

    mean: tuple[float, ...] | None
    variance: tuple[float, ...] | None
    gamma: tuple[float, ...] | None
    beta: tuple[float, ...] | None
    epsilon: float

    def __post_init__(self) -> None:
        """Check the numbers; raises ``ValueError`` for variances whose root does not exist, and for lengths."""
        lengths = set()
        for name in ("mean", "variance", "gamma", "beta"):
            value = getattr(self, name)
            if value is not None:
                vector = _vector(name, value)
                lengths.add(len(vector))
                object.__setattr__(self, name, vector)
        if len(lengths) > 1:
            raise ShapeError(f"mean, variance, gamma and beta have lengths {sorted(lengths)}; all must have the same")
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon is {self.epsilon}; it must be a number >= 0")
        for k, number in enumerate(self.variance or ()):
            if not number + self.epsilon > 0:
                raise ValueError(f"variance[{k}] is {number}; with epsilon {self.epsilon} it must make a sum > 0")

    @property
    def channels(self) -> int | None:
        """How many channels it is for, or ``None`` if nothing says so."""
        return next((len(v) for v in (self.mean, self.variance, self.gamma, self.beta) if v is not None), None)

    def folded(self, weights: Array, biases: Array | None) -> tuple[Array, Array]:
        """Return weights and biases, in float64, with which the plain convolution gives the normalized result."""
        channels = len(weights)
        mean, variance, gamma, beta = (
            np.full(channels, neutral) if value is None else np.array(value)
            for value, neutral in ((self.mean, 0.0), (self.variance, 1.0), (self.gamma, 1.0), (self.beta, 0.0))
        )
        scale = gamma / np.sqrt(variance + self.epsilon)
        shift = beta - scale * mean
        each = (channels,) + (1,) * (weights.ndim - 1)
        return weights * scale.reshape(each), (0 if biases is None else biases) * scale + shift


def _vector(name: str, values: Any) -> tuple[float, ...]:
    """Return a vector of finite numbers as a tuple."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise TypeError(f"{name} is {values!r}; it must be a vector of numbers") from error
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} has dtype {array.dtype}; it must be a vector of numbers")
    if array.ndim != 1 or not array.size:
        raise ShapeError(f"{name} has shape {array.shape}; it must be a vector with one number for each channel")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} is not finite; every number must be")
    return tuple(float(number) for number in array)


def _fusible(name: str, value: Any) -> MPSNNNeuronDescriptor:
    """Check a fused neuron: any but PReLU, whose slopes have a setter of their own. Source: [doc]."""
    if value is None:
        return MPSNNNeuronDescriptor(MPSCNNNeuronType.NONE)
    fused = neuron_descriptor(name, value)
    if fused.neuron_type is MPSCNNNeuronType.PReLU:
        raise ValueError(f"{name} is of type PReLU; set it with set_neuron_to_prelu(parameters_a)")
    return fused


def _normalization(name: str, value: Any) -> InferenceBatchNormalization | None:
    if value is not None and not isinstance(value, InferenceBatchNormalization):
        raise TypeError(f"{name} is of type {type(value).__name__}; use the setter of the batch normalization")
    return value


ARGUMENTS = ("kernel_width", "kernel_height", "input_feature_channels", "output_feature_channels")
STRIDES = ("stride_in_pixels_x", "stride_in_pixels_y")
DILATIONS = ("dilation_rate_x", "dilation_rate_y")


@secure_coding(
    version=1,
    arguments=ARGUMENTS,
    properties=(*STRIDES, *DILATIONS, "groups", "fused_neuron_descriptor", "prelu_parameters_a", "batch_normalization"),
)
class MPSCNNConvolutionDescriptor(PropertyHolder, SecureCoding):
    """A convolution with every input channel of a group joined to every output channel of it. Source: [doc]."""

    kind: ClassVar[str] = "regular"

    kernel_width = Property(at_least(1), 3, "Width of the window in pixels; may be even.")
    kernel_height = Property(at_least(1), 3, "Height of the window in pixels; may be even.")
    input_feature_channels = Property(at_least(1), 1, "Channels of the source image.")
    output_feature_channels = Property(at_least(1), 1, "Channels of the result, before a sub-pixel rearrangement.")
    stride_in_pixels_x = Property(at_least(1), 1, "Distance of two windows in x.")
    stride_in_pixels_y = Property(at_least(1), 1, "Distance of two windows in y.")
    dilation_rate_x = Property(at_least(1), 1, "Distance of two taps in x.")
    dilation_rate_y = Property(at_least(1), 1, "Distance of two taps in y.")
    groups = Property(at_least(1), 1, "Into how many groups the channels fall; more than 1: multiples of 4 in each.")
    fused_neuron_descriptor = Property(
        _fusible, MPSNNNeuronDescriptor(MPSCNNNeuronType.NONE), "The neuron that every result passes through."
    )
    batch_normalization = Property(
        _normalization, None, "What the setter of the batch normalization made, or ``None``."
    )

    def __init__(
        self,
        kernel_width: int = 3,
        kernel_height: int = 3,
        input_feature_channels: int | None = None,
        output_feature_channels: int | None = None,
        **properties: Any,
    ) -> None:
        """Make a descriptor; every other property may be given by keyword.

        Raises ``TypeError`` for what is no integer, ``ValueError`` for one that is too small.
        """
        sizes = kernel_width, kernel_height, input_feature_channels, output_feature_channels
        fix(self, **dict(zip(ARGUMENTS, sizes, strict=True)))
        initialize(self, properties)

    def set_neuron_to_prelu(self, parameters_a: Sequence[float] | Array) -> None:
        """Fuse a PReLU with one slope for each output channel; ``ShapeError`` for another length."""
        slopes = _vector("parameters_a", parameters_a)
        self._check_channels("parameters_a", len(slopes))
        vars(self)["fused_neuron_descriptor"] = MPSNNNeuronDescriptor(MPSCNNNeuronType.PReLU, data=slopes)

    @property
    def prelu_parameters_a(self) -> tuple[float, ...] | None:
        """The slopes of the fused PReLU, or ``None``."""
        return self.fused_neuron_descriptor.data

    @prelu_parameters_a.setter
    def prelu_parameters_a(self, slopes: tuple[float, ...] | None) -> None:
        if slopes is not None:
            self.set_neuron_to_prelu(slopes)

    def set_batch_normalization_parameters_for_inference(
        self, mean: Any = None, variance: Any = None, gamma: Any = None, beta: Any = None, epsilon: float = FLT_MIN
    ) -> None:
        """Fold a normalization into the weights as they are loaded; ``None`` stands for 0, 1, 1 and 0 [choice].

        Each argument is a vector with one number for each output channel; it is copied. Raises ``ShapeError`` for
        another length, ``ValueError`` where ``variance + epsilon`` is not positive.
        """
        made = InferenceBatchNormalization(mean, variance, gamma, beta, epsilon)
        if made.channels is not None:
            self._check_channels("the batch normalization", made.channels)
        self.batch_normalization = made

    def _check_channels(self, name: str, length: int) -> None:
        if length != self.output_feature_channels:
            raise ShapeError(
                f"{name} has length {length}; it must be {self.output_feature_channels}, the number of output channels"
            )

    @property
    def channel_multiplier(self) -> int:
        """Result channels for each source channel of a depthwise convolution; 0 for a regular one. Source: [doc]."""
        return 0

    @property
    def sub_pixel_factor(self) -> int:
        """How many result pixels, along each axis, one window makes: 1 but for sub-pixel convolutions."""
        return 1

    @property
    def effective_groups(self) -> int:
        """Groups as the functional form counts them: a depthwise convolution has as many as input channels."""
        return self.groups

    @property
    def weights_shape(self) -> Shape:
        """Shape of the weights: output channels, height, width, input channels of a group."""
        channels = self.input_feature_channels // self.groups
        return self.output_feature_channels, self.kernel_height, self.kernel_width, channels

    @property
    def neuron(self) -> Neuron | None:
        """The fused neuron's functional form, or ``None`` where there is nothing to apply."""
        fused = self.fused_neuron_descriptor
        return None if fused.neuron_type is MPSCNNNeuronType.NONE else fused.neuron

    @property
    def fixed(self) -> tuple[Any, ...]:
        """What a reload may not change: everything but neuron and batch normalization."""
        numbers = (getattr(self, name) for name in (*ARGUMENTS, *STRIDES, *DILATIONS, "groups"))
        return self.kind, *numbers, self.sub_pixel_factor

    def check(self) -> None:
        """Raise ``ValueError`` unless the properties fit each other."""
        for side in ("input", "output"):
            channels = getattr(self, f"{side}_feature_channels")
            if channels % self.groups:
                raise ValueError(f"groups is {self.groups}; it must divide {side}_feature_channels, {channels}")
            if self.groups > 1 and channels // self.groups % 4:
                raise ValueError(
                    f"groups is {self.groups}, which leaves {channels // self.groups} {side} channels in a group; with "
                    f"more than one group that must be a multiple of 4: change groups or {side}_feature_channels"
                )
        slopes, normalization = self.prelu_parameters_a, self.batch_normalization
        if slopes is not None:
            self._check_channels("parameters_a", len(slopes))
        if normalization is not None and normalization.channels is not None:
            self._check_channels("the batch normalization", normalization.channels)

    def copy(self) -> Self:
        """Return an equal descriptor."""
        return copy.copy(self)

    def saved_values(self) -> dict[str, Any]:
        """Return what is saved; a PReLU only as its slopes."""
        values = super().saved_values()
        return values if self.prelu_parameters_a is None else values | {"fused_neuron_descriptor": None}

    def __repr__(self) -> str:
        """Return what is set, but for arrays."""
        fresh = type(self)(*(getattr(self, name) for name in ARGUMENTS))
        shown = [f"{name}={getattr(self, name)}" for name in ARGUMENTS]
        for name, value in vars(self).items():
            if value != vars(fresh)[name]:
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


@secure_coding(version=1)
class MPSCNNDepthWiseConvolutionDescriptor(MPSCNNConvolutionDescriptor):
    """A convolution of each source channel by itself, with ``channel_multiplier`` filters for each.

    Result channel ``k * channel_multiplier + q`` is source channel k convolved with its filter q [doc]. Apple's text
    says that a multiplier of 1 is all that is supported at present [doc]; here every one is [choice].
    """

    kind = "depthwise"

    @property
    def channel_multiplier(self) -> int:
        """Result channels for each source channel."""
        return self.output_feature_channels // self.input_feature_channels

    @property
    def effective_groups(self) -> int:
        """One group for each input channel."""
        return self.input_feature_channels

    @property
    def weights_shape(self) -> Shape:
        """Shape of the weights: output channels, height, width."""
        return self.output_feature_channels, self.kernel_height, self.kernel_width

    def check(self) -> None:
        """Raise ``ValueError`` unless groups is 1 and output channels are a multiple of input channels."""
        super().check()
        if self.groups != 1:
            raise ValueError(f"groups is {self.groups}; a depthwise convolution must have groups 1: leave it at that")
        if self.output_feature_channels % self.input_feature_channels:
            raise ValueError(
                f"output_feature_channels is {self.output_feature_channels}; in a depthwise convolution it must be a "
                f"multiple of input_feature_channels, {self.input_feature_channels}"
            )


@secure_coding(version=1, properties=("sub_pixel_scale_factor",))
class MPSCNNSubPixelConvolutionDescriptor(MPSCNNConvolutionDescriptor):
    """A convolution whose channels become ``r * r`` pixels: r = ``sub_pixel_scale_factor``. Forward only [doc].

    Channel ``(r * dy + dx) * (Co / r**2) + c`` of a result pixel becomes channel c of its sub-pixel (dy, dx) [doc].
    """

    kind = "sub-pixel"

    sub_pixel_scale_factor = Property(at_least(1), 1, "How many pixels a result pixel becomes along each axis.")

    @property
    def sub_pixel_factor(self) -> int:
        """The scale factor."""
        return self.sub_pixel_scale_factor

    def check(self) -> None:
        """Raise ``ValueError`` unless the square of the factor divides the output channels."""
        super().check()
        pixels = self.sub_pixel_scale_factor**2
        if self.output_feature_channels % pixels:
            raise ValueError(
                f"sub_pixel_scale_factor is {self.sub_pixel_scale_factor}; its square, {pixels}, must divide "
                f"output_feature_channels, {self.output_feature_channels}"
            )
        if self.groups > 1 and self.output_feature_channels // pixels % 4:
            raise ValueError(
                f"sub_pixel_scale_factor is {self.sub_pixel_scale_factor}, which leaves "
                f"{self.output_feature_channels // pixels} channels; with more than one group that must be a multiple "
                "of 4"
            )
