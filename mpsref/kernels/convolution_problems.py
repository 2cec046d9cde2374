"""What the kernels with weights share: arguments, shapes, and the problems of their three operations.

Weights are OHWI, ``(Co, kH, kW, Ci / G)``: output channel, kernel row, kernel column, input channel within its group.
Group r of G joins the input channels ``r * Ci/G ...`` to the output channels ``r * Co/G ...``; depthwise is G = Ci.
``y`` is the result (N, OH, OW, Co); the source gradient ``g`` = dL/dy has the same layout, and its size defines OH, OW.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np

from mpsref import codecs, registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair, PairLike, flag, integer, optional_pair
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.geometry import EdgeMode
from mpsref.kernels.neuron import Neuron
from mpsref.kernels.posing import posed

__all__ = ["Forward", "GradientData", "GradientWeights", "Weighted", "WeightedKernel"]

LAYOUT = "(output channels, kernel height, kernel width, input channels / groups)"


@dataclass(frozen=True)
class WeightedKernel(registry.Spec):
    """A kernel with weights and biases: how a call becomes a problem.

    Subclasses are frozen dataclasses with the fields ``kernel_size`` and ``neuron``, and say how taps pair pixels.
    """

    kernel_size: PairLike = field(metadata={"codec": codecs.pair("k")})

    @property
    def groups(self) -> int:
        """G: how many groups of channels there are."""
        return 1

    @property
    def edge_mode(self) -> EdgeMode:
        """What taps outside the image read."""
        return "zero"

    @property
    def neuron(self) -> Neuron | None:
        """What is applied to the results of the forward pass."""
        raise NotImplementedError

    @property
    def size(self) -> Pair:
        """The kernel size as a pair."""
        return cast(Pair, self.kernel_size)

    def default_outputs(self, shape: Shape) -> Pair:
        """Return (OH, OW) of the result for a source of ``shape``, where the caller names none."""
        raise NotImplementedError

    def pairs(self, axis: int, tap: int, outputs: int, length: int) -> tuple[list[int], list[int]]:
        """Return what a tap joins on an axis (0: y, 1: x): result pixels, and the source pixel of each."""
        raise NotImplementedError

    def check_sizes(self, source: Pair, output: Pair) -> None:
        """Raise ``ShapeError`` for sizes of source and result that this kernel cannot join; any do, by default."""

    def forward(
        self, x: Any, weights: Any, biases: Any = None, output_size: Any = None, *, out: Any = None, backend: Any = None
    ) -> Array:
        """Return y (N, OH, OW, Co) in the dtype of ``x`` (N, H, W, Ci), for ``weights`` OHWI and ``biases`` (Co,).

        ``output_size`` (OH, OW) may be any size >= 1 unless the kernel fixes it. Raises ``ValueError`` or
        ``TypeError`` for what does not fit.
        """
        x = arrays.as_image("x", x)
        weights = _weights(self, weights, x.shape[3])
        size = optional_pair("output_size", output_size, low=1)
        problem = posed(self.problems["forward"], self, x.shape, len(weights), size, biases is not None)
        inputs = (x, weights) if biases is None else (x, weights, _biases(biases, len(weights)))
        return registry.run_one(problem, *inputs, out=out, backend=backend)

    def gradient_data(self, g: Any, weights: Any, source_shape: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return dL/dx in the dtype of ``g``, shaped like the source: ``source_shape`` is (N, H, W, Ci)."""
        g = arrays.as_image("g", g)
        shape = arrays.as_shape("source_shape", source_shape)
        problem = posed(self.problems["gradient_data"], self, shape, g.shape[3], g.shape[1:3])
        weights = _weights(self, weights, shape[3])
        if weights.shape[0] != g.shape[3]:
            raise ShapeError(f"g has {g.shape[3]} channels and weights {len(weights)} output channels; they must agree")
        _check_batch(g, shape)
        return registry.run_one(problem, g, weights, out=out, backend=backend)

    def gradient_weights(self, g: Any, x: Any, *, out: Any = None, backend: Any = None) -> tuple[Array, Array]:
        """Return dL/dweights (OHWI) and dL/dbiases (Co,), summed over the batch: float32, or float64 for float64."""
        g, x = arrays.as_image("g", g), arrays.as_image("x", x)
        problem = posed(self.problems["gradient_weights"], self, x.shape, g.shape[3], g.shape[1:3])
        _check_batch(g, x.shape)
        dw, db = registry.run(problem, g, x, out=out, backend=backend)
        return dw, db


def _weights(spec: WeightedKernel, weights: Any, channels: int) -> Array:
    """Return the weights as an array of legal dtype whose shape fits ``channels`` input channels."""
    array = _parameter("weights", weights)
    _check_groups(spec, "input", channels)
    expected = (*spec.size, channels // spec.groups)
    if array.ndim != 4 or array.shape[1:] != expected or not len(array):
        needed = f"(Co, {', '.join(map(str, expected))}) {LAYOUT}"
        message = f"weights has shape {array.shape}; with {channels} input channels it must be {needed}"
        if array.ndim == 4 and (*array.shape[2:], array.shape[1]) == expected:
            message += "; this looks like (out, in, height, width): pass weights.transpose(0, 2, 3, 1)"
        raise ShapeError(message)
    return array


def _biases(biases: Any, channels: int) -> Array:
    """Return the biases as a vector of legal dtype."""
    array = _parameter("biases", biases)
    if array.shape != (channels,):
        raise ShapeError(f"biases has shape {array.shape}; it must be ({channels},): one for each output channel")
    return array


def _parameter(name: str, value: Any) -> Array:
    array = arrays.as_array(name, value)
    if arrays.dtype_name(array) is None:
        raise TypeError(f"{name} has dtype {array.dtype}; it must be float16 or float32 (float64: reference only)")
    return array


def _check_groups(spec: WeightedKernel, side: str, channels: int) -> None:
    if channels % spec.groups:
        raise ShapeError(f"groups is {spec.groups}; it must divide the number of {side} channels, {channels}")


def _check_batch(g: Array, shape: Shape) -> None:
    if g.shape[0] != shape[0]:
        raise ShapeError(f"g has {g.shape[0]} images and the source {shape[0]}; they must have the same N (axis 0)")


@dataclass(frozen=True)
class Weighted(registry.ImageProblem):
    """A problem of a kernel with weights; the source is x (N, H, W, Ci)."""

    spec: WeightedKernel
    output_channels: int = field(metadata={"codec": codecs.integer("co")})

    def __post_init__(self) -> None:
        """Check that the groups divide the channels."""
        super().__post_init__()
        object.__setattr__(self, "output_channels", integer("output channels", self.output_channels, low=1))
        _check_groups(self.spec, "input", self.source_shape[3])
        _check_groups(self.spec, "output", self.output_channels)

    @property
    def result_size(self) -> Pair:
        """Height and width of the result y, and of the source gradient g."""
        raise NotImplementedError

    @property
    def weights_shape(self) -> Shape:
        """Shape of the weights: OHWI."""
        return self.output_channels, *self.spec.size, self.source_shape[3] // self.spec.groups

    @property
    def result_image(self) -> Shape:
        """Shape of the result y, and of the source gradient g."""
        return self.source_shape[0], *self.result_size, self.output_channels

    @property
    def flops(self) -> int:
        """Multiplications and additions of what the taps join."""
        joined = 2 * self.source_shape[0] * math.prod(self.weights_shape[::3])
        for axis, taps in enumerate(self.spec.size):
            outputs, length = self.result_size[axis], self.source_shape[1 + axis]
            joined *= sum(len(self.spec.pairs(axis, tap, outputs, length)[0]) for tap in range(taps))
        return joined

    def _moderate(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Scale float16 weights so that sums of products with float16 pixels stay finite."""
        if drawn["weights"].dtype == np.float16:
            return drawn | {"weights": drawn["weights"] * np.float16(2.0**-8)}
        return drawn


@dataclass(frozen=True)
class Forward(Weighted):
    """``forward``: y (N, OH, OW, Co) from x (N, H, W, Ci), weights, and biases if ``biased``."""

    method: ClassVar[str] = "forward"
    output_size: Pair = field(default=cast(Pair, None), metadata={"codec": codecs.pair("out")})
    biased: bool = field(default=False, metadata={"codec": codecs.flag("biased", "unbiased")})

    def __post_init__(self) -> None:
        """Check the shapes; an output size of ``None`` becomes the default one."""
        super().__post_init__()
        size = optional_pair("output_size", self.output_size, low=1)
        object.__setattr__(self, "output_size", size or self.spec.default_outputs(self.source_shape))
        object.__setattr__(self, "biased", flag("biased", self.biased))
        self.spec.check_sizes(self.source_shape[1:3], self.output_size)
        data = None if self.spec.neuron is None else self.spec.neuron.data
        if data is not None and len(data) != self.output_channels:
            raise ShapeError(
                f"the neuron's data has {len(data)} values and the result {self.output_channels} channels; "
                "PReLU needs one for each"
            )

    @property
    def result_size(self) -> Pair:
        """Height and width of y."""
        return self.output_size

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source image x, the weights, and the biases if there are any."""
        shapes = {"x": self.source_shape, "weights": self.weights_shape}
        return shapes | {"biases": (self.output_channels,)} if self.biased else shapes

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image y."""
        return (self.result_image,)

    def input_dtypes(self, image: np.dtype[Any]) -> dict[str, np.dtype[Any]]:
        """Biases are float32 beside float16 images."""
        biases = np.promote_types(image, np.float32)
        return {name: biases if name == "biases" else image for name in self.input_shapes}

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Scale float16 weights down."""
        return self._moderate(drawn)


@dataclass(frozen=True)
class _Gradient(Weighted):
    """A gradient: the size of g says how many results there are."""

    gradient_size: Pair = field(default=cast(Pair, None), metadata={"codec": codecs.pair("g")})

    def __post_init__(self) -> None:
        """Check the shapes; a gradient size of ``None`` becomes that of the default output."""
        super().__post_init__()
        if self.spec.neuron is not None:
            raise ValueError(
                f"neuron is {self.spec.neuron!r}: gradients need the value before the neuron, which is not kept; "
                "use neuron=None, and the gradient of a neuron of its own"
            )
        size = optional_pair("gradient_size", self.gradient_size, low=1)
        object.__setattr__(self, "gradient_size", size or self.spec.default_outputs(self.source_shape))
        self.spec.check_sizes(self.source_shape[1:3], self.gradient_size)

    @property
    def result_size(self) -> Pair:
        """Height and width of g."""
        return self.gradient_size


@dataclass(frozen=True)
class GradientData(_Gradient):
    """``gradient_data``: dx (N, H, W, Ci) from g (N, OH, OW, Co) and the weights."""

    method: ClassVar[str] = "gradient_data"

    def __post_init__(self) -> None:
        """Refuse edge mode "clamp", whose data gradient Apple does not define."""
        super().__post_init__()
        if self.spec.edge_mode == "clamp":
            raise UnsupportedError(
                'edge_mode is "clamp"; the data gradient is defined for "zero" only: use that, or pad the image before'
            )

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient g and the weights."""
        return {"g": self.result_image, "weights": self.weights_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image dx."""
        return (self.source_shape,)

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Scale float16 weights down."""
        return self._moderate(drawn)


@dataclass(frozen=True)
class GradientWeights(_Gradient):
    """``gradient_weights``: dw (OHWI) and db (Co,) from g (N, OH, OW, Co) and x (N, H, W, Ci)."""

    method: ClassVar[str] = "gradient_weights"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient g and the source image x."""
        return {"g": self.result_image, "x": self.source_shape}

    @property
    def result_shapes(self) -> tuple[Shape, Shape]:
        """The gradients of the weights and of the biases."""
        return self.weights_shape, (self.output_channels,)

    def result_dtypes(self, *inputs: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """Float32; float64 where an image is float64."""
        dtype = np.result_type(np.float32, *inputs)
        return dtype, dtype
