"""The four problems of batch normalization: which arrays each reads, and what sums are carried from call to call.

Images are (N, H, W, C); everything else has one number for each channel, (C,), float32, or float64 beside float64
images. The pixels of all images of a batch count alike, so a batch is n = sum of H * W pixels a channel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from mpsref import codecs, operations
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import flag, integer
from mpsref.errors import ShapeError
from mpsref.kernels.neuron import slope

if TYPE_CHECKING:
    from mpsref.kernels.batch_normalization import BatchNormalization


class BatchStatistics(NamedTuple):
    """What is known of the pixels of a batch that were seen so far."""

    n: int
    """How many pixels."""
    mean: Array
    """(C,)"""
    m2: Array
    """(C,): the sum of squared deviations from the mean."""

    @property
    def variance(self) -> Array | None:
        """The biased variance ``m2 / n``, (C,); ``None`` before the first pixel."""
        return self.m2 / self.n if self.n else None


class BatchGradientSums(NamedTuple):
    """The sums over the pixels of a batch that its gradient needs; they are the gradients of the parameters."""

    n: int
    """How many pixels were added up."""
    dbeta: Array
    """(C,): the sum of g', dL/dbeta."""
    dgamma: Array
    """(C,): the sum of g' * xhat, dL/dgamma."""


class Inputs(NamedTuple):
    """The arrays that an operation reads, by name; those that it does not read, or that were left out, are ``None``."""

    x: Array
    g: Any = None
    mean: Any = None
    variance: Any = None
    m2: Any = None
    gamma: Any = None
    beta: Any = None
    dbeta: Any = None
    dgamma: Any = None


def not_negative(name: str, array: Array) -> Array:
    """Return ``array`` unless an element is below 0; NaN passes, and stays in its channel."""
    if np.fmin.reduce(array) < 0:  # which passes over NaN
        channel = int(np.argmax(array < 0))
        raise ValueError(f"{name}[{channel}] is {array[channel]}; it must be >= 0")
    return array


class BatchProblem(operations.ImageProblem):
    """What the four problems share."""

    spec: BatchNormalization
    pictures: ClassVar[tuple[str, ...]] = ("x",)

    def __post_init__(self) -> None:
        """Check the shape, and that PReLU has as many slopes as there are channels."""
        super().__post_init__()
        data = None if self.spec.neuron is None else self.spec.neuron.data
        if data is not None and len(data) != self.channels:
            raise ShapeError(
                f"neuron has {len(data)} slopes and the image {self.channels} channels (axis 3); "
                "it must have one for each channel"
            )

    @cached_property
    def channels(self) -> int:
        """C."""
        return self.source_shape[3]

    @cached_property
    def pixels(self) -> int:
        """How many pixels the images of this call have, N * H * W."""
        n, height, width, _ = self.source_shape
        return n * height * width

    @property
    def vectors(self) -> tuple[str, ...]:
        """The names of the inputs (C,), in order."""
        raise NotImplementedError

    @cached_property
    def input_shapes(self) -> dict[str, Shape]:
        """The images, then the vectors."""
        return dict.fromkeys(self.pictures, self.source_shape) | dict.fromkeys(self.vectors, (self.channels,))

    def input_dtypes(self, image: np.dtype[Any]) -> dict[str, np.dtype[Any]]:
        """Vectors are float32 beside float16 images."""
        wide = np.promote_types(image, np.float32)
        return {name: image if name in self.pictures else wide for name in self.input_shapes}

    def named(self, inputs: Iterable[Array]) -> Inputs:
        """Return the inputs of an implementation by name."""
        return Inputs(**dict(zip(self.input_shapes, inputs, strict=True)))

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Make variances positive; and where rounding decides on which side of a kink a value lies, let g be 0."""
        made = {
            name: (abs(array) + array.dtype.type(2.0**-9)) if name in ("variance", "m2") else array
            for name, array in drawn.items()
        }
        if "g" in made and self.spec.neuron is not None:
            made["g"] = np.where(_near_kink(self, made), 0, made["g"]).astype(made["g"].dtype)
        return made

    def result_dtypes(self, *inputs: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
        """Of an image, the dtype of the first one that is read; of sums float32, or float64 for float64 images."""
        if self.result_shapes[0] == self.source_shape:
            return (inputs[0],)
        return (np.result_type(np.float32, *inputs[: len(self.pictures)]),) * 2


def _near_kink(problem: BatchProblem, drawn: dict[str, Array]) -> Array:
    """Tell where the slope of the neuron would be another one a little to the left or to the right."""
    spec, given = problem.spec, Inputs(**{name: array.astype(np.float64) for name, array in drawn.items()})
    assert spec.neuron is not None
    scaled = (
        (given.x - given.mean) / np.sqrt(given.variance + spec.epsilon) * (1 if given.gamma is None else given.gamma)
    )
    shift = np.zeros_like(given.mean) if given.beta is None else given.beta
    margin = 2.0**-17 * (1 + abs(scaled) + abs(shift))
    at, below, above = (slope(spec.neuron, scaled + shift + sign * margin) for sign in (0, -1, 1))
    return np.asarray((at != below) | (at != above))


class Counted(BatchProblem):
    """A problem with sums over ``count`` pixels of earlier calls."""

    count: int = field(default=0, metadata={"codec": codecs.integer("count")})

    def __post_init__(self) -> None:
        """Check the count."""
        super().__post_init__()
        object.__setattr__(self, "count", integer("count", self.count, low=0))


class Reduction(Counted):
    """An operation that adds up all pixels, to the sums of earlier calls."""

    @property
    def result_shapes(self) -> tuple[Shape, Shape]:
        """Two numbers for each channel."""
        return (self.channels,), (self.channels,)

    def where(self, index: tuple[int, ...]) -> str:
        """Name the channel."""
        before = f", added to those of {self.count} before" if self.count else ""
        return f"channel {index[-1]}, over {self.pixels} pixels{before}"


class Scaled(BatchProblem):
    """A problem with parameters; ``gamma`` and ``beta`` say which of them are given and read."""

    gamma: bool = field(default=False, metadata={"codec": codecs.flag("gamma", "nogamma")})
    beta: bool = field(default=False, metadata={"codec": codecs.flag("beta", "nobeta")})

    def __post_init__(self) -> None:
        """Check the flags."""
        super().__post_init__()
        for name in ("gamma", "beta"):
            object.__setattr__(self, name, flag(name, getattr(self, name)) and name in self.reads)

    @property
    def reads(self) -> tuple[str, ...]:
        """Which of gamma and beta the operation reads where they are given."""
        return "gamma", "beta"

    @property
    def vectors(self) -> tuple[str, ...]:
        """Statistics, and what is given of scale and shift."""
        return ("mean", "variance", *(name for name in ("gamma", "beta") if getattr(self, name)))


class Statistics(Reduction):
    """``statistics``: mean and m2 from x, and from those of ``count`` earlier pixels."""

    method: ClassVar[str] = "statistics"

    @property
    def vectors(self) -> tuple[str, ...]:
        """The earlier statistics."""
        return ("mean", "m2") if self.count else ()


class Forward(Scaled):
    """``forward``: y from x, mean and variance."""

    method: ClassVar[str] = "forward"

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image y."""
        return (self.source_shape,)


class StatisticsGradient(Scaled, Reduction):
    """``statistics_gradient``: dbeta and dgamma from g, x, mean and variance, added to those of ``count`` pixels."""

    method: ClassVar[str] = "statistics_gradient"
    pictures: ClassVar[tuple[str, ...]] = ("g", "x")

    @property
    def reads(self) -> tuple[str, ...]:
        """Scale and shift matter to the slope of a neuron alone."""
        return ("gamma", "beta") if self.spec.activates else ()

    @property
    def vectors(self) -> tuple[str, ...]:
        """Statistics, scale and shift, and the earlier sums."""
        return *super().vectors, *(("dbeta", "dgamma") if self.count else ())


class Gradient(Scaled, Counted):
    """``gradient``: dx from g, x, mean and variance, and the sums over ``count`` pixels; 0 is for frozen statistics."""

    method: ClassVar[str] = "gradient"
    pictures: ClassVar[tuple[str, ...]] = ("g", "x")

    @property
    def reads(self) -> tuple[str, ...]:
        """The shift matters to the slope of a neuron alone."""
        return ("gamma", "beta") if self.spec.activates else ("gamma",)

    @property
    def vectors(self) -> tuple[str, ...]:
        """Statistics, scale and shift, and the sums."""
        return *super().vectors, *(("dbeta", "dgamma") if self.count else ())

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image dx."""
        return (self.source_shape,)
