"""Instance and group normalization: each image by itself, a group of channels at a time, and the gradients.

Over the ``M`` values of one group of channels in one image, with ``r = 1 / sqrt(variance + epsilon)``:

Forward   ``xhat = (x - mean) r``, ``y = gamma xhat + beta``; gamma and beta belong to the channel
Gradient  ``h = g gamma``, ``dx = r (h - sum(h) / M - xhat sum(h xhat) / M)``
          ``dgamma = sum of g xhat``, ``dbeta = sum of g``, over the pixels of one channel of one image

The variance is the biased one, divided by M [choice]. Channels are grouped in contiguous blocks [choice]. Instance
normalization has one channel a group [doc]. Values are taken relative to the group's first one before anything is
averaged, so that a constant group gives ``xhat = 0`` exactly [choice].

Source: ``MPSCNNInstanceNormalization.h``, ``MPSCNNGroupNormalization.h``; forward [doc], gradient [math].
"""

from __future__ import annotations

from dataclasses import field
from math import ceil, log2, prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mpsref import codecs, operations, registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import flag, integer, real
from mpsref.errors import ShapeError
from mpsref.kernels.normalization import FLT_MIN, chain, growth
from mpsref.kernels.reference import UNIT_ROUNDOFF, ErrorBound
from mpsref.operations import Declaration, Formula, OperationKey

u = UNIT_ROUNDOFF

ALL_VALUES = (1, 2, 4)
"""The axes of one group in an image (N, H, W, groups, channels of a group)."""


class ImageNormalization(operations.Spec):
    """What instance and group normalization have in common: the operations."""

    @property
    def epsilon(self) -> float:
        """What is added to the variance."""
        raise NotImplementedError

    def groups_in(self, channels: int) -> int:
        """Return how many groups an image of so many channels has."""
        raise NotImplementedError

    def forward(self, x: Any, gamma: Any = None, beta: Any = None, *, out: Any = None, backend: Any = None) -> Array:
        """Normalize the images ``x`` (N, H, W, C); the result has their shape and dtype.

        ``gamma`` and ``beta`` are (C,); ``None`` stands for 1 and 0. Raises ``ValueError`` or ``TypeError`` for what
        does not fit.
        """
        x = arrays.as_image("x", x)
        given = {"gamma": gamma, "beta": beta}
        vectors = [arrays.as_vector(name, v, x.shape[3:], x) for name, v in given.items() if v is not None]
        problem = self.problems["forward"](self, x.shape, gamma is not None, beta is not None)
        return registry.run_one(problem, x, *vectors, out=out, backend=backend)

    def gradient(
        self, g: Any, x: Any, gamma: Any = None, *, out: Any = None, backend: Any = None
    ) -> tuple[Array, Array, Array]:
        """Return (dx, dgamma, dbeta) from the source gradient ``g`` = dL/dy and the source image ``x``.

        dx has the shape of ``x`` and the dtype of ``g``. dgamma and dbeta are (N, C), a row for each image, not summed
        over the batch: float32, or float64 where the images are. Raises ``ValueError`` or ``TypeError`` for what does
        not fit.
        """
        g, x = arrays.as_image("g", g), arrays.as_image("x", x)
        if g.shape != x.shape:
            raise ShapeError(f"g has shape {g.shape} and x {x.shape}; both must be equal")
        vectors = [] if gamma is None else [arrays.as_vector("gamma", gamma, x.shape[3:], g, x)]
        problem = self.problems["gradient"](self, x.shape, gamma is not None)
        dx, dgamma, dbeta = registry.run(problem, g, x, *vectors, out=out, backend=backend)
        return dx, dgamma, dbeta


class GroupsProblem(operations.ImageProblem):
    """What forward and gradient have in common: the groups."""

    spec: ImageNormalization

    def __post_init__(self) -> None:
        """Check the shape, and that the groups divide the channels."""
        super().__post_init__()
        channels, groups = self.source_shape[3], self.groups
        if channels % groups:
            raise ShapeError(f"groups is {groups}; it must divide the number of channels of x, {channels}")

    @property
    def groups(self) -> int:
        """How many groups of channels there are."""
        return self.spec.groups_in(self.source_shape[3])

    @property
    def grouped_shape(self) -> Shape:
        """(N, H, W, groups, channels of a group)."""
        *pixels, channels = self.source_shape
        return *pixels, self.groups, channels // self.groups

    @property
    def count(self) -> int:
        """M: how many values are normalized together."""
        return prod(self.grouped_shape[axis] for axis in ALL_VALUES)

    def input_dtypes(self, image: np.dtype[Any]) -> dict[str, np.dtype[Any]]:
        """Gamma and beta are float32 also for float16 images."""
        return {name: image if len(shape) == 4 else statistic(image) for name, shape in self.input_shapes.items()}

    def where(self, index: tuple[int, ...]) -> str:
        """Name the group of an element."""
        size = self.source_shape[3] // self.groups
        first = index[-1] // size * size
        return f"image {index[0]}, channels {first}..{first + size - 1}"


def statistic(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of statistics and parameter gradients of such images."""
    return np.result_type(np.float32, *dtypes)


class NormalizationForward(GroupsProblem):
    """``forward``: y (N, H, W, C) from x, from gamma (C,) if ``scaled`` and beta (C,) if ``shifted``."""

    method: ClassVar[str] = "forward"
    scaled: bool = field(default=True, metadata={"codec": codecs.flag("scaled", "unscaled")})
    shifted: bool = field(default=True, metadata={"codec": codecs.flag("shifted", "unshifted")})

    def __post_init__(self) -> None:
        """Check the flags too."""
        super().__post_init__()
        for name in ("scaled", "shifted"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The image x, and the vectors that there are."""
        vectors = {"gamma": self.scaled, "beta": self.shifted}
        return {"x": self.source_shape} | {name: self.source_shape[3:] for name, given in vectors.items() if given}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image y."""
        return (self.source_shape,)

    def parameters(self, vectors: tuple[Array, ...], dtype: Any) -> tuple[Array, Array]:
        """Return gamma and beta (C,), from those that are given."""
        channels, given = self.source_shape[3], list(vectors)
        gamma = given.pop(0) if self.scaled else np.ones(channels, dtype)
        beta = given.pop(0) if self.shifted else np.zeros(channels, dtype)
        return gamma, beta


class NormalizationGradient(GroupsProblem):
    """``gradient``: dx (N, H, W, C), dgamma and dbeta (N, C), from g, x, and from gamma (C,) if ``scaled``."""

    method: ClassVar[str] = "gradient"
    scaled: bool = field(default=True, metadata={"codec": codecs.flag("scaled", "unscaled")})

    def __post_init__(self) -> None:
        """Check the flag too."""
        super().__post_init__()
        object.__setattr__(self, "scaled", flag("scaled", self.scaled))

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient g, the image x, and gamma if it is given."""
        shapes: dict[str, Shape] = {"g": self.source_shape, "x": self.source_shape}
        return shapes | {"gamma": self.source_shape[3:]} if self.scaled else shapes

    @property
    def result_shapes(self) -> tuple[Shape, Shape, Shape]:
        """The image dx, and dgamma and dbeta with a row for each image."""
        n, _, _, channels = self.source_shape
        return self.source_shape, (n, channels), (n, channels)

    def result_dtypes(self, *inputs: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
        """Dx is like g; parameter gradients are float32 at least."""
        return inputs[0], *(statistic(*inputs[:2]),) * 2

    def parameters(self, vectors: tuple[Array, ...], dtype: Any) -> Array:
        """Return gamma (C,)."""
        return vectors[0] if self.scaled else np.ones(self.source_shape[3], dtype)


PROBLEMS = {"forward": NormalizationForward, "gradient": NormalizationGradient}


class InstanceNormalization(ImageNormalization):
    """Instance normalization: the statistics of each channel of each image. ``epsilon`` is at least 0.

    >>> import numpy as np
    >>> x = np.array([[1, 10], [3, 14]], float).reshape(1, 1, 2, 2)
    >>> InstanceNormalization(epsilon=3).forward(x, gamma=[2, 7**0.5], beta=[0, 1]).round(6).ravel().tolist()
    [-1.0, -1.0, 1.0, 3.0]
    """

    epsilon: float = field(default=FLT_MIN, metadata={"codec": codecs.number("eps")})
    problems: ClassVar = PROBLEMS

    def __post_init__(self) -> None:
        """Check epsilon."""
        object.__setattr__(self, "epsilon", real("epsilon", self.epsilon, low=0))

    def groups_in(self, channels: int) -> int:
        """Every channel is a group."""
        return channels


class GroupNormalization(ImageNormalization):
    """Group normalization: the statistics of ``groups`` blocks of channels of each image.

    ``groups`` is at least 1 and divides the number of channels; ``epsilon`` is at least 0.

    >>> import numpy as np
    >>> x = np.array([1, 3, 2, 6, 5, 7, 2, 10], float).reshape(1, 1, 2, 4)
    >>> GroupNormalization(groups=2, epsilon=4).forward(x)[0, 0, :, :2].round(6).tolist()
    [[-1.0, -0.333333], [0.333333, 1.0]]
    """

    groups: int = field(default=1, metadata={"codec": codecs.integer("g")})
    epsilon: float = field(default=FLT_MIN, metadata={"codec": codecs.number("eps")})
    problems: ClassVar = PROBLEMS

    def __post_init__(self) -> None:
        """Check groups and epsilon."""
        object.__setattr__(self, "groups", integer("groups", self.groups, low=1))
        object.__setattr__(self, "epsilon", real("epsilon", self.epsilon, low=0))

    def groups_in(self, channels: int) -> int:
        """Return the number of groups, whether or not it divides the channels."""
        return self.groups


def forward(problem: NormalizationForward, x: Array, *vectors: Array) -> Array:
    """y = gamma xhat + beta."""
    gamma, beta = problem.parameters(vectors, x.dtype)
    centred, deviation = statistics(problem, x)
    return gamma * (centred / deviation).reshape(x.shape) + beta


def gradient(problem: NormalizationGradient, g: Array, x: Array, *vectors: Array) -> tuple[Array, Array, Array]:
    """dx = r (h - sum(h) / M - xhat sum(h xhat) / M); dgamma = sum of g xhat, dbeta = sum of g."""
    gamma = problem.parameters(vectors, x.dtype)
    centred, deviation = statistics(problem, x)
    xhat, h = centred / deviation, (g * gamma).reshape(centred.shape)
    a, b = (values.sum(ALL_VALUES, keepdims=True) for values in (h, h * xhat))
    with np.errstate(divide="ignore"):
        dx = (h - a / problem.count - xhat * (b / problem.count)) / deviation
    dgamma, dbeta = (values.sum(axis=(1, 2)) for values in (g * xhat.reshape(x.shape), g))
    return dx.reshape(x.shape), dgamma, dbeta


def statistics(problem: GroupsProblem, x: Array) -> tuple[Array, Array]:
    """Return x - mean (N, H, W, groups, channels of a group), and sqrt(variance + epsilon), which broadcasts."""
    grouped = x.reshape(problem.grouped_shape)
    from_first = grouped - grouped[:, :1, :1, :, :1]
    centred = from_first - from_first.mean(ALL_VALUES, keepdims=True)
    variance = (centred**2).mean(ALL_VALUES, keepdims=True)
    return centred, np.sqrt(variance + problem.spec.epsilon)


class Errors(NamedTuple):
    """What bounds the error of ``xhat``, all of which broadcast against (N, H, W, groups, channels of a group)."""

    xhat: Array
    r: Array
    rho: Array
    """The relative error of r."""
    e: Array
    """The error of xhat, which is 0 where a group is constant."""


def errors(problem: GroupsProblem, x: Array) -> Errors:
    """Follow the rounding errors through the statistics: first mean and variance, then r and xhat [math]."""
    m = problem.count
    h, merges = chain(m), 1 + ceil(log2(m))
    centred, deviation = statistics(problem, x)
    mean = x.reshape(centred.shape).mean(ALL_VALUES, keepdims=True)
    variance = (centred**2).mean(ALL_VALUES, keepdims=True)
    distance = np.abs(centred)
    most, usual = distance.max(ALL_VALUES, keepdims=True), distance.mean(ALL_VALUES, keepdims=True)
    of_mean = np.where(most > 0, 2 * growth(h + 8) * most + merges * u * (np.abs(mean) + 17 * most), 0)
    of_variance = growth(h + 2 * merges + 8) * variance + 16 * u * most * usual
    of_variance += 4 * np.sqrt(max(1, merges / 4)) * (of_mean + u * most) * np.sqrt(variance)
    rho = of_variance / (2 * deviation**2) + 14 * u
    xhat = centred / deviation
    return Errors(xhat, 1 / deviation, rho, of_mean / deviation + np.abs(xhat) * (rho + 3 * u))


def forward_terms(problem: NormalizationForward, x: Array, *vectors: Array) -> ErrorBound:
    """|gamma| e + 3 u (|gamma xhat| + |beta|)."""
    gamma, beta = (np.abs(vector) for vector in problem.parameters(vectors, x.dtype))
    _xhat, _, _, e = errors(problem, x)
    xhat, e = np.abs(_xhat).reshape(x.shape), e.reshape(x.shape)
    return ErrorBound.of_error(gamma * e + 3 * u * (gamma * xhat + beta))


def gradient_terms(
    problem: NormalizationGradient, g: Array, x: Array, *vectors: Array
) -> tuple[ErrorBound, ErrorBound, ErrorBound]:
    """The errors of xhat, r and of both sums, through each term of dx; one value in a group gives exactly 0."""
    m, h = problem.count, chain(problem.count)
    gamma = problem.parameters(vectors, x.dtype)
    xhat, r, rho, e = errors(problem, x)
    hg = (g * gamma).reshape(xhat.shape)
    a, s = (values.sum(ALL_VALUES, keepdims=True) for values in (hg, hg * xhat))
    hg, xhat = np.abs(hg), np.abs(xhat)
    of_a = growth(h + 8) * hg.sum(ALL_VALUES, keepdims=True)
    of_s = (hg * e + growth(h + 8) * hg * xhat).sum(ALL_VALUES, keepdims=True)
    a, s = np.abs(a), np.abs(s)
    dx = r * ((rho + 12 * u) * (hg + a / m + xhat * s / m) + of_a / m + (xhat * of_s + e * s) / m)
    e, xhat, g = e.reshape(x.shape), xhat.reshape(x.shape), np.abs(g)
    dgamma, dbeta = (values.sum(axis=(1, 2)) for values in (g * e + growth(h + 4) * g * xhat, growth(h + 4) * g))
    return (
        ErrorBound.of_error((dx if m > 1 else 0 * dx).reshape(x.shape)),
        ErrorBound.of_error(dgamma),
        ErrorBound.of_error(dbeta),
    )


SPECS = (InstanceNormalization, GroupNormalization)
REFERENCE: dict[OperationKey, Formula] = {
    (spec, method): formula for spec in SPECS for method, formula in (("forward", forward), ("gradient", gradient))
}
TERMS: dict[OperationKey, Formula] = {
    (spec, method): terms
    for spec in SPECS
    for method, terms in (("forward", forward_terms), ("gradient", gradient_terms))
}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
