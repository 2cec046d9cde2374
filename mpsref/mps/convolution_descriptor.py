"""Descriptors of convolutions (kernel size, channels, strides, dilation, groups, neuron), and their enumerations.

>>> descriptor = MPSCNNConvolutionDescriptor(3, 3, 8, 16, groups=2)
>>> descriptor.stride_in_pixels_x, descriptor.weights_shape
(1, (16, 3, 3, 4))
>>> MPSCNNDepthWiseConvolutionDescriptor(3, 3, 8, 16).weights_shape
(16, 3, 3)

Each property is checked when it is set, and all of them together when a kernel is made, so that they can be set in any
order. The kernel copies the descriptor: later changes have no effect on it.

Source: ``MPSCNNConvolution.h``, ``MPSNeuralNetworkTypes.h`` [doc]; the time of the checks, and the copy [choice
data-source-calls].
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from mpsref.arguments.arrays import Array, Shape, copied
from mpsref.arguments.parameters import integer
from mpsref.arguments.text import shown
from mpsref.errors import ShapeError
from mpsref.kernels import Neuron
from mpsref.mps.core.properties import (
    Alias,
    Initializer,
    Property,
    at_least,
    describe_parameters,
    initialize,
    set_read_only,
)
from mpsref.mps.core.serialization import Descriptor, SecureCoding, secure_coding
from mpsref.mps.core.types import Enumeration, OfApple
from mpsref.mps.neuron import MPSCNNNeuronType, MPSNNNeuronDescriptor, neuron_descriptor, neuron_of


class MPSCNNConvolutionWeightsLayout(Enumeration):
    """The order of the weights in memory; there is one: output channel, row, column, input channel of the group."""

    OHWI = 0


class MPSCNNWeightsQuantizationType(Enumeration):
    """How 8-bit weights are decoded: not at all, by a range for each output channel, or by a table."""

    NONE = 0
    Linear = 1
    LookupTable = 2


class MPSNNConvolutionAccumulatorPrecisionOption(Enumeration):
    """The precision of sums of products. It has no effect: sums always have full precision [design objects-options].

    Results in half precision would depend on the order of summation, which is not documented; Apple's kernels may
    ignore the option [doc].
    """

    Half = 0
    Float = 1


class MPSCNNConvolutionGradientOption(enum.IntFlag, metaclass=OfApple):
    """Which gradients a gradient kernel computes."""

    GradientWithData = 1
    GradientWithWeightsAndBias = 2
    All = 3


def gradient_option(name: str, value: object) -> MPSCNNConvolutionGradientOption:
    """Return ``value`` as a gradient option: a member, its number, its name in lower case, or members joined by ``|``.

    Raises ``ValueError`` for another value, ``TypeError`` for another type.

    >>> gradient_option("gradient_option", "all") == gradient_option("gradient_option", 3)
    True
    >>> gradient_option("gradient_option", 0)
    Traceback (most recent call last):
    ValueError: gradient_option is 0; it must be GradientWithData (1), GradientWithWeightsAndBias (2) or All (3)
    """
    members = MPSCNNConvolutionGradientOption.__members__
    text = value if isinstance(value, str) else None
    found = next((option for word, option in members.items() if word.lower() == text), None)
    if isinstance(value, enum.Enum) and not isinstance(value, MPSCNNConvolutionGradientOption):
        raise TypeError(f"{name} is {shown(value)}; it must be an MPSCNNConvolutionGradientOption")
    if text is None:
        number = integer(name, value)
        found = next((option for option in members.values() if option == number), None)
    if found is None:
        choices = [f"{word} ({int(option)})" for word, option in members.items()]
        raise ValueError(f"{name} is {shown(value)}; it must be {', '.join(choices[:-1])} or {choices[-1]}")
    return found


FLT_MIN = float(np.finfo(np.float32).tiny)


@secure_coding(version=1, arguments=("mean", "variance", "gamma", "beta", "epsilon"))
@dataclass(frozen=True)
class InferenceBatchNormalization(SecureCoding):
    """A normalization that is folded into weights and biases; by default the vectors are 0, 1, 1 and 0.

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
        """Check and convert the vectors."""
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
        """The number of channels, or ``None`` where all vectors are ``None``."""
        return next((len(v) for v in (self.mean, self.variance, self.gamma, self.beta) if v is not None), None)

    def folded(self, weights: Array, biases: Array | None) -> tuple[Array, Array]:
        """Return the weights and biases, in float64, of the convolution with the normalized result."""
        channels = len(weights)
        mean, variance, gamma, beta = (
            np.full(channels, neutral) if value is None else np.array(value)
            for value, neutral in ((self.mean, 0.0), (self.variance, 1.0), (self.gamma, 1.0), (self.beta, 0.0))
        )
        scale = gamma / np.sqrt(variance + self.epsilon)
        shift = beta - scale * mean
        each = (channels,) + (1,) * (weights.ndim - 1)
        return weights * scale.reshape(each), (0 if biases is None else biases) * scale + shift


def _vector(name: str, values: ArrayLike) -> tuple[float, ...]:
    """Return a vector of finite numbers as a tuple."""
    try:
        array = np.asarray(values)
    except Exception as error:  # an array library may raise anything at all
        raise TypeError(f"{name} is {shown(values)}; it must be a vector of numbers") from error
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} has dtype {array.dtype}; it must be a vector of numbers")
    if array.ndim != 1 or not array.size:
        raise ShapeError(f"{name} has shape {array.shape}; it must be a vector with one number for each channel")
    array = copied(name, array, np.float64)  # an error with its bytes for an array beyond the memory
    if not np.isfinite(array).all():
        raise ValueError(f"{name} is not finite; every number must be")
    return tuple(float(number) for number in array)


NO_NEURON = neuron_descriptor("fused_neuron_descriptor", MPSNNNeuronDescriptor(MPSCNNNeuronType.NONE))


def _fusible(name: str, value: object) -> MPSNNNeuronDescriptor:
    """Check a fused neuron: any type except PReLU, which ``set_neuron_to_prelu`` sets. Source: [doc]."""
    if value is None:
        return NO_NEURON
    fused = neuron_descriptor(name, value)
    if fused.neuron_type is MPSCNNNeuronType.PReLU:
        raise ValueError(f"{name} is of type PReLU; set it with set_neuron_to_prelu(parameters_a)")
    return fused


def _normalization(name: str, value: object) -> InferenceBatchNormalization | None:
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
@describe_parameters
class MPSCNNConvolutionDescriptor(Descriptor):
    """A convolution of all input channels of a group to all output channels of the group.

    Raises
    ------
    TypeError, ValueError
        For a value that is not an integer, or too small.
    """

    kind: ClassVar[str] = "regular"

    kernel_width = Property(at_least(1), 3, "Width of the window in pixels; may be even.")
    kernel_height = Property(at_least(1), 3, "Height of the window in pixels; may be even.")
    input_feature_channels = Property(at_least(1), 1, "Channels of the source image.")
    output_feature_channels = Property(at_least(1), 1, "Channels of the result, before a sub-pixel rearrangement.")
    stride_in_pixels_x = Property(at_least(1), 1, "Distance of two windows in x.")
    stride_in_pixels_y = Property(at_least(1), 1, "Distance of two windows in y.")
    dilation_rate_x = Property(at_least(1), 1, "Distance of two taps in x.")
    dilation_rate_y = Property(at_least(1), 1, "Distance of two taps in y.")
    groups = Property(at_least(1), 1, "The number of groups of channels; with more than 1, each has a multiple of 4.")
    fused_neuron_descriptor = Property(_fusible, NO_NEURON, "The neuron that every result passes through.")
    batch_normalization = Property(_normalization, None, "The batch normalization that its setter made, or ``None``.")

    def __init__(
        self,
        /,
        kernel_width: int = 3,
        kernel_height: int = 3,
        input_feature_channels: int | None = None,
        output_feature_channels: int | None = None,
        **properties: Any,
    ) -> None:
        sizes = kernel_width, kernel_height, input_feature_channels, output_feature_channels
        set_read_only(self, **dict(zip(ARGUMENTS, sizes, strict=True)))
        initialize(self, properties)

    cnn_convolution_descriptor_with_kernel_width_kernel_height_input_feature_channels_output_feature_channels = (
        Initializer(__init__)
    )

    def set_neuron_to_prelu(self, parameters_a: Sequence[float] | Array) -> None:
        """Fuse a PReLU with one slope for each output channel; ``ShapeError`` for another length."""
        slopes = _vector("parameters_a", parameters_a)
        self._check_channels("parameters_a", len(slopes))
        prelu = MPSNNNeuronDescriptor(MPSCNNNeuronType.PReLU, data=slopes)
        vars(self)["fused_neuron_descriptor"] = neuron_descriptor("fused_neuron_descriptor", prelu)

    @property
    def prelu_parameters_a(self) -> tuple[float, ...] | None:
        """The slopes of the fused PReLU, or ``None``."""
        return self.fused_neuron_descriptor.data

    @prelu_parameters_a.setter
    def prelu_parameters_a(self, slopes: tuple[float, ...] | None) -> None:
        if slopes is not None:
            self.set_neuron_to_prelu(slopes)

    def set_batch_normalization_parameters_for_inference(
        self,
        mean: ArrayLike | None = None,
        variance: ArrayLike | None = None,
        gamma: ArrayLike | None = None,
        beta: ArrayLike | None = None,
        epsilon: float = FLT_MIN,
    ) -> None:
        """Fold a normalization into the weights when they are loaded.

        Parameters
        ----------
        mean, variance, gamma, beta : array_like, optional
            Vectors with a number for each output channel, which are copied; by default 0, 1, 1 and 0 [design
            training-folded].
        epsilon : float
            The summand of the variance, >= 0.

        Raises
        ------
        ShapeError
            For another length.
        ValueError
            If a ``variance + epsilon`` is not positive.
        """
        given: dict[str, Any] = {"mean": mean, "variance": variance, "gamma": gamma, "beta": beta, "epsilon": epsilon}
        made = InferenceBatchNormalization(**given)
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
        """Result pixels of one window along each axis: 1 but for sub-pixel convolutions."""
        return 1

    effective_groups: Alias[int] = Alias(
        "groups",
        "The number of groups of the functional form: for a depthwise convolution, the number of input channels.",
    )

    @property
    def weights_shape(self) -> Shape:
        """Shape of the weights: output channels, height, width, input channels of a group."""
        channels = self.input_feature_channels // self.groups
        return self.output_feature_channels, self.kernel_height, self.kernel_width, channels

    @property
    def neuron(self) -> Neuron | None:
        """The functional form of the fused neuron, or ``None`` without one."""
        return neuron_of(self.fused_neuron_descriptor)

    @property
    def fixed(self) -> tuple[object, ...]:
        """The properties that a reload may not change: all but neuron and batch normalization."""
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

    def saved_values(self) -> dict[str, object]:
        """Return the values to save; a PReLU only as its slopes."""
        values = super().saved_values()
        return values if self.prelu_parameters_a is None else values | {"fused_neuron_descriptor": None}

    def __repr__(self) -> str:
        """Return the properties that differ from their defaults."""
        fresh = type(self)(*(getattr(self, name) for name in ARGUMENTS))
        shown = [f"{name}={getattr(self, name)}" for name in ARGUMENTS]
        for name, value in vars(self).items():
            if value != vars(fresh)[name]:
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


@secure_coding(version=1)
class MPSCNNDepthWiseConvolutionDescriptor(MPSCNNConvolutionDescriptor):
    """A convolution of each source channel with ``channel_multiplier`` filters.

    Result channel ``k * channel_multiplier + q`` is source channel k convolved with its filter q [doc]. Apple's kernels
    support a multiplier of 1 only [doc]; here it can be any [design convolution-multiplier].
    """

    kind = "depthwise"

    @property
    def channel_multiplier(self) -> int:
        """Result channels for each source channel."""
        return self.output_feature_channels // self.input_feature_channels

    effective_groups: Alias[int] = Alias("input_feature_channels", "One group for each input channel.")

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

    sub_pixel_scale_factor = Property(at_least(1), 1, "Pixels that each result pixel becomes, along each axis.")

    sub_pixel_factor: Alias[int] = Alias("sub_pixel_scale_factor", "The scale factor.")

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
