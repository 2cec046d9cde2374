"""Batch normalization: statistics of a batch, the normalization, and its gradient, as separate operations.

With sums over all n pixels of a batch, one channel by itself, ``r = 1 / sqrt(variance + epsilon)`` and f a neuron:

Statistics           ``mean = sum x / n``, ``variance = m2 / n``, ``m2 = sum (x - mean)**2``
Forward              ``xhat = (x - mean) * r``, ``z = gamma * xhat + beta``, ``y = f(z)``
Statistics gradient  ``g' = g * f'(z)``, ``dbeta = sum g'``, ``dgamma = sum g' * xhat``
Gradient             ``dx = gamma * r * (g' - dbeta / n - xhat * dgamma / n)``; frozen: ``gamma * r * g'``

A batch may come in parts: statistics and sums of one call are given to the next, and are the same for every partition
and order, up to rounding. Statistics are count, mean and m2, merged as Chan does, with the first pixel of each call
as its shift: nothing cancels where a mean is large, and a constant channel has m2 = 0 exactly [choice
normalization-constant].

Source: MPSCNNBatchNormalizationStatistics, MPSCNNBatchNormalization, MPSCNNBatchNormalizationStatisticsGradient,
MPSCNNBatchNormalizationGradient in ``MPSCNNBatchNormalization.h``: formulas of the first two, and what the last two
compute [doc]; the gradient's formulas [math].

The bounds count every rounding of an evaluation in the order of the formula, 3 ulp for a root and for a division, and
sums of at most 1,024 additions one after the other. They are absolute: a bound relative to a result that cancels would
be too small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from anymetal.fork_safe import cached_property
from mpsref import codecs
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array
from mpsref.arguments.device import is_on_device
from mpsref.arguments.parameters import integer
from mpsref.backend import BackendLike
from mpsref.codecs import parameter
from mpsref.errors import OrderError
from mpsref.kernels.neuron import Neuron, activation_error, check_slopes, neuron_codec, slope, value
from mpsref.kernels.normalization import FLT_MIN, chain
from mpsref.kernels.reference import UNIT_ROUNDOFF, ErrorBound
from mpsref.kernels.reference import gamma as growth  # gamma is a scale here
from mpsref.operations import ImageProblem, Spec, operation, vector
from mpsref.registry import call


class BatchStatistics(NamedTuple):
    """Statistics of the pixels of a batch so far."""

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
    """Number of pixels."""
    dbeta: Array
    """(C,): the sum of g', dL/dbeta."""
    dgamma: Array
    """(C,): the sum of g' * xhat, dL/dgamma."""


def not_negative(name: str, array: Array) -> Array:
    """Return ``array``, or raise ``ValueError`` if an element is negative. NaN is accepted.

    The values of an array on a device are not read.
    """
    if is_on_device(array):
        return array
    if np.fmin.reduce(array) < 0:  # fmin ignores NaN
        channel = int(np.argmax(array < 0))
        raise ValueError(f"{name}[{channel}] is {array[channel]}; it must be >= 0")
    return array


def _check_variance(name: str, variance: object) -> None:
    """Raise ``ValueError`` for a negative variance. Other invalid arguments are reported by the call."""
    if is_on_device(variance):
        return
    try:
        with np.errstate(over="ignore"):
            array = variance if type(variance) is np.ndarray else np.asarray(variance, np.float64)
    except Exception:  # an array library may raise anything at all
        return
    if (
        array.ndim == 1
        and 0 < array.size <= arrays.AXIS_LIMIT
        and array.dtype.kind in "fiu"
        and np.fmin.reduce(array) < 0
    ):
        not_negative(name, array)


def _earlier(name: str, state: object, kind: type[Any], **image: Any) -> tuple[int, Any, Any]:
    """Return the count and the two vectors of ``state``, checked; ``None`` for those over no pixels."""
    if state is None:
        return 0, None, None
    if not isinstance(state, kind):
        raise TypeError(f"{name} is of type {type(state).__name__}; it must be a {kind.__name__} or None")
    count, first, second = state
    channels = next(arrays.as_image(key, one).shape[3:] for key, one in image.items())
    for key, one in zip(kind._fields[1:], (first, second), strict=True):
        if not (type(one) is np.ndarray and one.shape == channels and one.dtype == np.float32):
            arrays.as_vector(f"{name}.{key}", one, channels)
    count = integer(f"{name}.n", count, low=0)
    return (count, first, second) if count else (0, None, None)


class BatchNormalization(Spec):
    """Batch normalization of images (N, H, W, C); statistics and parameters are vectors (C,).

    Parameters
    ----------
    epsilon : float, optional
        At least 0, added to the variance under the root; default: the smallest normal float32.
    neuron : Neuron, optional
        Applied to the result of the normalization.

    Examples
    --------
    >>> norm = BatchNormalization(epsilon=1.5)
    >>> x = np.array([1, 2, 4, 5], np.float32).reshape(2, 1, 2, 1)
    >>> seen = norm.statistics(x[:1])
    >>> seen = norm.statistics(x[1:], seen)
    >>> seen.n, seen.mean.tolist(), seen.variance.tolist()
    (4, [3.0], [2.5])
    >>> given = seen.mean, seen.variance, np.array([2.0]), np.array([0.5])
    >>> norm.forward(x, *given).ravel().tolist()
    [-1.5, -0.5, 1.5, 2.5]
    >>> sums = norm.statistics_gradient(x, x, *given)
    >>> sums.dbeta.tolist(), sums.dgamma.tolist()
    ([12.0], [5.0])
    >>> norm.gradient(x, x, *given, sums).ravel().tolist()
    [-0.75, -0.375, 0.375, 0.75]
    """

    epsilon: float = parameter(codecs.real("eps", low=0), default=FLT_MIN)
    neuron: Neuron | None = parameter(neuron_codec(), default=None)

    @property
    def activates(self) -> bool:
        """Whether there is a neuron other than the identity."""
        return self.neuron is not None and self.neuron.type != "none"

    def statistics(
        self,
        x: ArrayLike,
        state: BatchStatistics | None = None,
        *,
        out: tuple[Array, Array] | None = None,
        backend: BackendLike = None,
    ) -> BatchStatistics:
        """Compute the statistics of all pixels of ``x``, merged with those of earlier calls.

        Parameters
        ----------
        x : array_like, shape (N, H, W, C)
            Source image.
        state : BatchStatistics, optional
            Statistics of earlier parts of the batch, which are not changed.

        Returns
        -------
        BatchStatistics
            float32 (float64 for float64 images); without any pixels n is 0, and mean and m2 are zeros.
        """
        x = arrays.as_image("x", x)
        count, *earlier = _earlier("state", state, BatchStatistics, x=x)
        if count:
            _check_variance("state.m2", earlier[1])
        mean, m2 = call(self, "statistics", (x, *earlier), out=out, backend=backend, count=count)
        if count and not x.size:
            mean[...], m2[...] = earlier
        return BatchStatistics(count + x.size // x.shape[3], mean, m2)

    def forward(
        self,
        x: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        gamma: ArrayLike | None = None,
        beta: ArrayLike | None = None,
        *,
        out: Array | None = None,
        backend: BackendLike = None,
    ) -> Array:
        """Normalize an image.

        Parameters
        ----------
        x : array_like, shape (N, H, W, C)
            Source image.
        mean, variance : array_like, shape (C,)
            Statistics; no variance is negative.
        gamma, beta : array_like, shape (C,), optional
            Scale and shift; default: 1 and 0.

        Raises
        ------
        ShapeError
            If a vector does not have C elements.
        ValueError
            If a variance is negative.
        """
        _check_variance("variance", variance)
        return call(self, "forward", (x, mean, variance, gamma, beta), out=out, backend=backend)

    def statistics_gradient(
        self,
        g: ArrayLike,
        x: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        gamma: ArrayLike | None = None,
        beta: ArrayLike | None = None,
        state: BatchGradientSums | None = None,
        *,
        out: tuple[Array, Array] | None = None,
        backend: BackendLike = None,
    ) -> BatchGradientSums:
        """Compute dbeta and dgamma: sums over all pixels, added to those of earlier calls.

        Parameters
        ----------
        g : array_like, shape (N, H, W, C)
            Source gradient dL/dy.
        x, mean, variance, gamma, beta
            The arguments of :meth:`forward`.
        state : BatchGradientSums, optional
            Sums over earlier parts of the batch, which are not changed.

        Returns
        -------
        BatchGradientSums
            float32 (float64 for float64 images).

        Raises
        ------
        ShapeError
            If the shapes of ``g`` and ``x`` differ, and as in :meth:`forward`.
        """
        x = arrays.as_image("x", x)
        _check_variance("variance", variance)
        count, *earlier = _earlier("state", state, BatchGradientSums, x=x)
        given = (g, x, mean, variance, gamma, beta, *earlier)
        dbeta, dgamma = call(self, "statistics_gradient", given, out=out, backend=backend, count=count)
        if count and not x.size:
            dbeta[...], dgamma[...] = earlier
        return BatchGradientSums(count + x.size // x.shape[3], dbeta, dgamma)

    def gradient(
        self,
        g: ArrayLike,
        x: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        gamma: ArrayLike | None = None,
        beta: ArrayLike | None = None,
        sums: BatchGradientSums | None = None,
        *,
        out: Array | None = None,
        backend: BackendLike = None,
    ) -> Array:
        """Compute dL/dx.

        Parameters
        ----------
        g, x, mean, variance, gamma, beta
            The arguments of :meth:`statistics_gradient`.
        sums : BatchGradientSums, optional
            Sums over the whole batch; without them mean and variance are constants that do not depend on ``x``.

        Raises
        ------
        OrderError
            If ``sums`` are over no pixels; other errors as in :meth:`statistics_gradient`.
        """
        _check_variance("variance", variance)
        count, *earlier = _earlier("sums", sums, BatchGradientSums, g=g)
        if sums is not None and not count:
            raise OrderError("sums.n is 0; call statistics_gradient on every part of the batch before gradient")
        given = (g, x, mean, variance, gamma, beta, *earlier)
        return call(self, "gradient", given, out=out, backend=backend, count=count)


class Inputs(NamedTuple):
    """The arrays that an operation reads, by name; ``None`` for those that it does not read or that are left out."""

    x: Array
    g: Any = None
    mean: Any = None
    variance: Any = None
    m2: Any = None
    gamma: Any = None
    beta: Any = None
    dbeta: Any = None
    dgamma: Any = None


class BatchProblem(ImageProblem):
    """Base of the four problems; images are (N, H, W, C), everything else (C,)."""

    spec: BatchNormalization

    def _check(self) -> None:
        check_slopes("the neuron's data", self.spec.neuron, self.channels)

    @cached_property
    def channels(self) -> int:
        """C."""
        return self.source_shape[3]

    @cached_property
    def pixels(self) -> int:
        """Number of pixels of the images of this call, N * H * W."""
        return math.prod(self.source_shape[:3])

    @property
    def image_names(self) -> tuple[str, ...]:
        """The names of the images that are read."""
        return tuple(name for name, one in self.arguments.items() if one.dtype == "image")

    def named(self, inputs: Iterable[Array]) -> Inputs:
        """Return the inputs of an implementation by name."""
        return Inputs(**dict(zip(self.arguments, inputs, strict=True)))

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Make variances positive, and set g to 0 where rounding determines the side of a kink."""
        made = {
            name: (abs(array) + array.dtype.type(2.0**-9)) if name in ("variance", "m2") else array
            for name, array in drawn.items()
        }
        if "g" in made and self.spec.neuron is not None:
            made["g"] = np.where(_near_kink(self, made), 0, made["g"]).astype(made["g"].dtype)
        return made


def _near_kink(problem: BatchProblem, drawn: dict[str, Array]) -> Array:
    """Return the positions at which the slope of the neuron changes within the rounding error of z."""
    spec, given = problem.spec, Inputs(**{name: array.astype(np.float64) for name, array in drawn.items()})
    assert spec.neuron is not None
    z = (given.x - given.mean) / np.sqrt(given.variance + spec.epsilon) * (1 if given.gamma is None else given.gamma)
    shift = np.zeros_like(given.mean) if given.beta is None else given.beta
    margin = 2.0**-17 * (1 + abs(z) + abs(shift))
    at, below, above = (slope(spec.neuron, z + shift + sign * margin) for sign in (0, -1, 1))
    return np.asarray((at != below) | (at != above))


class Counted(BatchProblem):
    """A problem with sums over ``count`` pixels of earlier calls."""

    count: int = parameter(codecs.integer("count", low=0), default=0)


class Reduction(Counted):
    """An operation that sums over all pixels and adds the sums of earlier calls."""

    def where(self, index: tuple[int, ...]) -> str:
        before = f", added to those of {self.count} before" if self.count else ""
        return f"channel {index[-1]}, over {self.pixels} pixels{before}"


class Scaled(BatchProblem):
    """A problem with parameters; ``gamma`` and ``beta`` say which of them are given and read."""

    gamma: bool = parameter(codecs.flag("gamma", "nogamma"), default=False)
    beta: bool = parameter(codecs.flag("beta", "nobeta"), default=False)

    def _check(self) -> None:
        super()._check()
        self._set(gamma=self.gamma and "gamma" in self.reads, beta=self.beta and "beta" in self.reads)

    @property
    def reads(self) -> tuple[str, ...]:
        """The parameters, of gamma and beta, that the operation reads if they are given."""
        return "gamma", "beta"


IMAGE, VECTOR = "n h w c", vector()
SCALE = {"mean": VECTOR, "variance": VECTOR, "gamma": vector(when="gamma"), "beta": vector(when="beta")}
SUMS = {"dbeta": vector(when="count"), "dgamma": vector(when="count")}


class Statistics(
    Reduction,
    method="statistics",
    inputs={"x": IMAGE, "mean": vector(when="count"), "m2": vector(when="count")},
    results={"mean": VECTOR, "m2": VECTOR},
):
    """``statistics``: mean and m2 from x, and from those of ``count`` earlier pixels."""


class BatchForward(Scaled, method="forward", inputs={"x": IMAGE, **SCALE}, results={"y": IMAGE}):
    """``forward``: y from x, mean and variance."""


class StatisticsGradient(
    Scaled,
    Reduction,
    method="statistics_gradient",
    inputs={"g": IMAGE, "x": IMAGE, **SCALE, **SUMS},
    results={"dbeta": VECTOR, "dgamma": VECTOR},
):
    """``statistics_gradient``: dbeta and dgamma from g, x, mean and variance, added to those of ``count`` pixels."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Only the slope of a neuron depends on scale and shift."""
        return ("gamma", "beta") if self.spec.activates else ()


class Gradient(
    Scaled,
    Counted,
    method="gradient",
    inputs={"g": IMAGE, "x": IMAGE, **SCALE, **SUMS},
    results={"dx": IMAGE},
):
    """``gradient``: dx from g, x, mean and variance, and the sums over ``count`` pixels; 0 is for frozen statistics."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Only the slope of a neuron depends on the shift."""
        return ("gamma", "beta") if self.spec.activates else ("gamma",)


def merged(n: int, mean: Array, m2: Array, b: int, mean_b: Array, m2_b: Array) -> tuple[Array, Array]:
    """Return mean and m2 of n and b pixels together; n and b are never multiplied, which could overflow elsewhere."""
    delta = mean_b - mean
    share = b / (n + b)
    return mean + delta * share, m2 + m2_b + delta * delta * (n * share)


def statistics_bound(problem: Statistics, x: Array, *state: Array) -> tuple[ErrorBound, ErrorBound]:
    """Bounds of mean and m2; a state counts as that many pixels at its mean.

    A channel whose pixels are all equal must come out without any error.
    """
    u, n = UNIT_ROUNDOFF, problem.count + problem.pixels
    mean, m2 = statistics(problem, x, *state)
    variance = m2 / n
    distances = abs(x.reshape(-1, problem.channels) - mean)
    largest, total = distances.max(axis=0), distances.sum(axis=0)
    if state:
        largest, total = np.maximum(largest, abs(state[0] - mean)), total + problem.count * abs(state[0] - mean)
    h, merges = chain(n), (2 if state else 1) + math.ceil(math.log2(n))
    both = largest + total / n  # the distances from any pixel
    of_mean = growth(h + 8) * both + merges * u * (abs(mean) + 10 * both)
    of_variance = (
        growth(h + 2 * merges + 8) * variance
        + 16 * u * largest * total / n
        + 4 * math.sqrt(max(1, merges / 4)) * (of_mean + u * largest) * np.sqrt(variance)
    )
    return ErrorBound(np.where(largest > 0, of_mean, 0)), ErrorBound(np.where(largest > 0, n * of_variance, 0))


@operation(BatchNormalization, problem=Statistics, bound=statistics_bound)
def statistics(problem: Statistics, x: Array, *state: Array) -> tuple[Array, Array]:
    """Mean and m2 of the pixels of this call, from their distances to the first one; then merged with the state."""
    pixels = x.reshape(-1, problem.channels)
    b = len(pixels)
    shift = pixels[0]
    d = pixels - shift
    md = d.sum(axis=0) / b
    mean = shift + md
    rest = d - md
    m2 = np.maximum((rest**2).sum(axis=0) - rest.sum(axis=0) ** 2 / b, 0)  # the second term only removes rounding
    return merged(problem.count, state[0], state[1], b, mean, m2) if state else (mean, m2)


def normalized(problem: BatchProblem, given: Inputs) -> tuple[Array, Array]:
    """Return r and xhat; an epsilon of 0 may make them infinite or NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        r = 1 / np.sqrt(given.variance + problem.spec.epsilon)
        return r, (given.x - given.mean) * r


def scaled(xhat: Array, given: Inputs) -> Array:
    """Return z = gamma * xhat + beta."""
    z = xhat if given.gamma is None else given.gamma * xhat
    return z if given.beta is None else z + given.beta


def upstream(problem: BatchProblem, xhat: Array, given: Inputs) -> Array:
    """Return g' = g * f'(z), the gradient for the normalization's own result."""
    neuron = problem.spec.neuron
    return np.asarray(given.g if neuron is None else given.g * slope(neuron, scaled(xhat, given)))


def forward_error(xhat: Array, given: Inputs) -> Array:
    """Bound of z."""
    shift = 0 if given.beta is None else abs(given.beta)
    return np.asarray(growth(18) * (abs(scaled(xhat, given._replace(beta=None))) + shift))


def forward_bound(problem: BatchForward, *inputs: Array) -> ErrorBound:
    """Bound of z, times the largest slope of the neuron near it, and the neuron's own bound."""
    given, neuron = problem.named(inputs), problem.spec.neuron
    _, xhat = normalized(problem, given)
    of_z = forward_error(xhat, given)
    if neuron is None:
        return ErrorBound(of_z)
    z = scaled(xhat, given)
    steepest = np.maximum.reduce([abs(slope(neuron, z + sign * of_z)) for sign in (0, -1, 1)])
    return ErrorBound(steepest * of_z + activation_error(neuron, "value", z))


@operation(BatchNormalization, problem=BatchForward, bound=forward_bound)
def forward(problem: BatchForward, *inputs: Array) -> Array:
    """y = f(gamma * (x - mean) * r + beta)."""
    given = problem.named(inputs)
    _, xhat = normalized(problem, given)
    z = scaled(xhat, given)
    return z if problem.spec.neuron is None else value(problem.spec.neuron, z)


def statistics_gradient_bound(problem: StatisticsGradient, *inputs: Array) -> tuple[ErrorBound, ErrorBound]:
    """Sums of absolute terms; a state is one term more."""
    h = chain(problem.pixels + (problem.count > 0))
    given = problem.named(inputs)
    _, xhat = normalized(problem, given)
    g = abs(upstream(problem, xhat, given))
    first, second = g.sum(axis=(0, 1, 2)), (g * abs(xhat)).sum(axis=(0, 1, 2))
    if problem.count:
        first, second = first + abs(given.dbeta), second + abs(given.dgamma)
    return ErrorBound(growth(h + 4) * first), ErrorBound(growth(h + 20) * second)


@operation(BatchNormalization, problem=StatisticsGradient, bound=statistics_gradient_bound)
def statistics_gradient(problem: StatisticsGradient, *inputs: Array) -> tuple[Array, Array]:
    """dbeta = sum g', dgamma = sum g' * xhat, plus the sums of earlier calls."""
    given = problem.named(inputs)
    _, xhat = normalized(problem, given)
    g = upstream(problem, xhat, given)
    dbeta, dgamma = g.sum(axis=(0, 1, 2)), (g * xhat).sum(axis=(0, 1, 2))
    return (dbeta + given.dbeta, dgamma + given.dgamma) if problem.count else (dbeta, dgamma)


def gradient_bound(problem: Gradient, *inputs: Array) -> ErrorBound:
    """Forty roundings of the absolute terms."""
    given = problem.named(inputs)
    r, xhat = normalized(problem, given)
    size = abs(upstream(problem, xhat, given))
    if problem.count:
        size = size + (abs(given.dbeta) + abs(xhat * given.dgamma)) / problem.count
    scale = r if given.gamma is None else abs(given.gamma) * r
    return ErrorBound(np.asarray(growth(40) * scale * size))


@operation(BatchNormalization, problem=Gradient, bound=gradient_bound)
def gradient(problem: Gradient, *inputs: Array) -> Array:
    """dx = gamma * r * (g' - dbeta / n - xhat * dgamma / n); without sums gamma * r * g'."""
    given = problem.named(inputs)
    r, xhat = normalized(problem, given)
    dz = upstream(problem, xhat, given)
    if problem.count:
        dz = dz - given.dbeta / problem.count - xhat * (given.dgamma / problem.count)
    return (r if given.gamma is None else given.gamma * r) * dz
