"""Instance and group normalization: each image by itself, a group of channels at a time, and the gradients.

Over the ``M`` values of one group of channels in one image, with ``r = 1 / sqrt(variance + epsilon)``:

Forward   ``xhat = (x - mean) r``, ``y = gamma xhat + beta``; gamma and beta belong to the channel
Gradient  ``h = g gamma``, ``dx = r (h - sum(h) / M - xhat sum(h xhat) / M)``
          ``dgamma = sum of g xhat``, ``dbeta = sum of g``, over the pixels of one channel of one image

The variance is the biased one, divided by M [choice instance-variance]. Channels are grouped in contiguous blocks
[choice group-order]. Instance normalization has one channel a group [doc]. Values are taken relative to the group's
first one before anything is averaged, so that a constant group gives ``xhat = 0`` exactly [choice
normalization-constant].

Source: ``MPSCNNInstanceNormalization.h``, ``MPSCNNGroupNormalization.h``; forward [doc], gradient [math].
"""

from __future__ import annotations

from math import ceil, log2, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mpsref import codecs
from mpsref.arguments.arrays import Array, Shape
from mpsref.backend import BackendLike
from mpsref.codecs import parameter
from mpsref.errors import ShapeError
from mpsref.kernels.normalization import FLT_MIN, chain
from mpsref.kernels.reference import UNIT_ROUNDOFF, ErrorBound
from mpsref.kernels.reference import gamma as growth  # gamma is a scale here
from mpsref.operations import ImageProblem, Spec, operation, vector
from mpsref.registry import call

u = UNIT_ROUNDOFF

ALL_VALUES = (1, 2, 4)
"""The axes of one group in an image (N, H, W, groups, channels of a group)."""


class ImageNormalization(Spec):
    """Base of instance and group normalization."""

    @property
    def epsilon(self) -> float:
        """The number added to the variance."""
        raise NotImplementedError

    def groups_in(self, channels: int) -> int:
        """Return the number of groups of an image with this number of channels."""
        raise NotImplementedError

    def forward(
        self,
        x: ArrayLike,
        gamma: ArrayLike | None = None,
        beta: ArrayLike | None = None,
        *,
        out: Array | None = None,
        backend: BackendLike = None,
    ) -> Array:
        """Normalize each image.

        Parameters
        ----------
        x : array_like, shape (N, H, W, C)
            Source images.
        gamma, beta : array_like, shape (C,), optional
            Scale and shift; default: 1 and 0.

        Raises
        ------
        ShapeError
            If the groups do not divide the channels, or a vector does not have C elements.
        """
        return call(self, "forward", (x, gamma, beta), out=out, backend=backend)

    def gradient(
        self,
        g: ArrayLike,
        x: ArrayLike,
        gamma: ArrayLike | None = None,
        *,
        out: tuple[Array, Array, Array] | None = None,
        backend: BackendLike = None,
    ) -> tuple[Array, Array, Array]:
        """Compute dL/dx, dL/dgamma and dL/dbeta.

        Parameters
        ----------
        g, x : array_like, shape (N, H, W, C)
            Source gradient dL/dy, and the source images of the forward pass.
        gamma : array_like, shape (C,), optional
            Scale; default: 1.

        Returns
        -------
        dx : ndarray
            In the shape and dtype of ``g``.
        dgamma, dbeta : ndarray, shape (N, C)
            A row for each image, not summed over the batch: float32, or float64 if an image is float64.

        Raises
        ------
        ShapeError
            If the shapes of ``g`` and ``x`` differ, and as in :meth:`forward`.
        """
        dx, dgamma, dbeta = call(self, "gradient", (g, x, gamma), out=out, backend=backend)
        return dx, dgamma, dbeta


class InstanceNormalization(ImageNormalization):
    """Instance normalization: the statistics of each channel of each image.

    Parameters
    ----------
    epsilon : float, optional
        At least 0, added to the variance; default: the smallest normal float32.

    Examples
    --------
    >>> x = np.array([[1, 10], [3, 14]], float).reshape(1, 1, 2, 2)
    >>> InstanceNormalization(epsilon=3).forward(x, gamma=[2, 7**0.5], beta=[0, 1]).round(6).ravel().tolist()
    [-1.0, -1.0, 1.0, 3.0]
    """

    epsilon: float = parameter(codecs.real("eps", low=0), default=FLT_MIN)

    def groups_in(self, channels: int) -> int:
        return channels


class GroupNormalization(ImageNormalization):
    """Group normalization: the statistics of ``groups`` blocks of channels of each image.

    Parameters
    ----------
    groups : int, optional
        Number of blocks, at least 1; it divides the number of channels.
    epsilon : float, optional
        At least 0, added to the variance; default: the smallest normal float32.

    Examples
    --------
    >>> x = np.array([1, 3, 2, 6, 5, 7, 2, 10], float).reshape(1, 1, 2, 4)
    >>> GroupNormalization(groups=2, epsilon=4).forward(x)[0, 0, :, :2].round(6).tolist()
    [[-1.0, -0.333333], [0.333333, 1.0]]
    """

    groups: int = parameter(codecs.integer("g", low=1), default=1)
    epsilon: float = parameter(codecs.real("eps", low=0), default=FLT_MIN)

    def groups_in(self, channels: int) -> int:
        return self.groups


class GroupsProblem(ImageProblem):
    """Base of the two problems: the groups."""

    spec: ImageNormalization

    def _check(self) -> None:
        channels, groups = self.source_shape[3], self.groups
        if channels % groups:
            raise ShapeError(f"groups is {groups}; it must divide the number of channels of x, {channels}")

    @property
    def groups(self) -> int:
        """The number of groups of channels."""
        return self.spec.groups_in(self.source_shape[3])

    @property
    def grouped_shape(self) -> Shape:
        """(N, H, W, groups, channels of a group)."""
        *pixels, channels = self.source_shape
        return *pixels, self.groups, channels // self.groups

    @property
    def count(self) -> int:
        """M: the number of values over which mean and variance are computed."""
        return prod(self.grouped_shape[axis] for axis in ALL_VALUES)

    def where(self, index: tuple[int, ...]) -> str:
        size = self.source_shape[3] // self.groups
        first = index[-1] // size * size
        return f"image {index[0]}, channels {first}..{first + size - 1}"


class NormalizationForward(
    GroupsProblem,
    method="forward",
    inputs={"x": "n h w c", "gamma": vector(when="scaled"), "beta": vector(when="shifted")},
    results={"y": "n h w c"},
):
    """``forward``: y from x, from gamma (C,) if ``scaled`` and beta (C,) if ``shifted``."""

    scaled: bool = parameter(codecs.flag("scaled", "unscaled"), default=True)
    shifted: bool = parameter(codecs.flag("shifted", "unshifted"), default=True)

    def parameters(self, vectors: tuple[Array, ...], dtype: Any) -> tuple[Array, Array]:
        """Return gamma and beta (C,), from those that are given."""
        channels, given = self.source_shape[3], list(vectors)
        gamma = given.pop(0) if self.scaled else np.ones(channels, dtype)
        beta = given.pop(0) if self.shifted else np.zeros(channels, dtype)
        return gamma, beta


class NormalizationGradient(
    GroupsProblem,
    method="gradient",
    inputs={"g": "n h w c", "x": "n h w c", "gamma": vector(when="scaled")},
    results={"dx": "n h w c", "dgamma": vector("n c"), "dbeta": vector("n c")},
):
    """``gradient``: dx (N, H, W, C), dgamma and dbeta (N, C), from g, x, and from gamma (C,) if ``scaled``."""

    scaled: bool = parameter(codecs.flag("scaled", "unscaled"), default=True)

    def parameters(self, vectors: tuple[Array, ...], dtype: Any) -> Array:
        """Return gamma (C,)."""
        return vectors[0] if self.scaled else np.ones(self.source_shape[3], dtype)


def statistics(problem: GroupsProblem, x: Array) -> tuple[Array, Array]:
    """Return x - mean (N, H, W, groups, channels of a group), and sqrt(variance + epsilon), which broadcasts."""
    grouped = x.reshape(problem.grouped_shape)
    centred = grouped - grouped[:, :1, :1, :, :1]
    centred -= centred.mean(ALL_VALUES, keepdims=True)
    variance = (centred**2).mean(ALL_VALUES, keepdims=True)
    return centred, np.sqrt(variance + problem.spec.epsilon)


class GroupErrors(NamedTuple):
    """Bounds of the error of ``xhat``, which broadcast against (N, H, W, groups, channels of a group).

    That of ``xhat`` is ``e + abs(xhat) slope``; it is 0 where a group is constant.
    """

    distance: Array
    """The absolute values of x - mean."""
    r: Array
    rho: Array
    """The relative error of r."""
    e: Array
    slope: Array


def errors(problem: GroupsProblem, x: Array, centred: Array, deviation: Array) -> GroupErrors:
    """Follow the rounding errors through the statistics: first mean and variance, then r and xhat [math]."""
    m = problem.count
    h, merges = chain(m), 1 + ceil(log2(m))
    mean = x.reshape(centred.shape).mean(ALL_VALUES, keepdims=True)
    variance = (centred**2).mean(ALL_VALUES, keepdims=True)
    distance = np.abs(centred)
    most, usual = distance.max(ALL_VALUES, keepdims=True), distance.mean(ALL_VALUES, keepdims=True)
    both = most + usual  # the distances from any value
    of_mean = np.where(most > 0, growth(h + 8) * both + merges * u * (np.abs(mean) + 10 * both), 0)
    of_variance = growth(h + 2 * merges + 8) * variance + 16 * u * most * usual
    of_variance += 4 * np.sqrt(max(1, merges / 4)) * (of_mean + u * most) * np.sqrt(variance)
    rho = of_variance / (2 * deviation**2) + 14 * u
    return GroupErrors(distance, 1 / deviation, rho, of_mean / deviation, rho + 3 * u)


def forward_bound(problem: NormalizationForward, x: Array, *vectors: Array) -> ErrorBound:
    """|gamma| error(xhat) + 3 u (|gamma xhat| + |beta|)."""
    gamma, beta = (np.abs(vector).reshape(problem.grouped_shape[3:]) for vector in problem.parameters(vectors, x.dtype))
    limit, r, _, e, slope = errors(problem, x, *statistics(problem, x))
    limit *= gamma * (slope + 3 * u) * r
    limit += gamma * e + 3 * u * beta
    return ErrorBound(limit.reshape(x.shape))


@operation(InstanceNormalization, GroupNormalization, problem=NormalizationForward, bound=forward_bound)
def forward(problem: NormalizationForward, x: Array, *vectors: Array) -> Array:
    """y = gamma xhat + beta."""
    gamma, beta = problem.parameters(vectors, x.dtype)
    centred, deviation = statistics(problem, x)
    return gamma * (centred / deviation).reshape(x.shape) + beta


def gradient_bound(
    problem: NormalizationGradient, g: Array, x: Array, *vectors: Array
) -> tuple[ErrorBound, ErrorBound, ErrorBound]:
    """The errors of xhat, r and of both sums, through each term of dx; one value in a group gives exactly 0."""
    m, h = problem.count, chain(problem.count)
    gamma = problem.parameters(vectors, x.dtype).reshape(problem.grouped_shape[3:])
    centred, deviation = statistics(problem, x)
    xhat, r, rho, e, slope = errors(problem, x, centred, deviation)
    centred *= r
    xhat *= r

    def summed(values: Array) -> Array:
        return np.asarray(values.sum(axis=(1, 2), keepdims=True))

    # All that is the same for the values of a group is computed once, from sums over the pixels of each channel.
    g = g.reshape(xhat.shape)
    a, s = (abs((gamma * summed(one)).sum(axis=4, keepdims=True)) for one in (g, g * centred))
    gamma, g = np.abs(gamma), np.abs(g)
    of_g, of_products = summed(g), summed(g * xhat)
    all_g, all_products = ((gamma * one).sum(axis=4, keepdims=True) for one in (of_g, of_products))
    of_a, of_s = growth(h + 8) * all_g, e * all_g + (slope + growth(h + 8)) * all_products
    g *= gamma * r * (rho + 12 * u)
    xhat *= r * ((rho + 12 * u + slope) * s + of_s) / m
    dx = g + xhat + r * ((rho + 12 * u) * a + of_a + e * s) / m
    found = dx if m > 1 else 0 * dx, e * of_g + (slope + growth(h + 4)) * of_products, growth(h + 4) * of_g
    of_x, of_gamma, of_beta = map(np.reshape, found, problem.result_shapes)
    return ErrorBound(of_x), ErrorBound(of_gamma), ErrorBound(of_beta)


@operation(InstanceNormalization, GroupNormalization, problem=NormalizationGradient, bound=gradient_bound)
def gradient(problem: NormalizationGradient, g: Array, x: Array, *vectors: Array) -> tuple[Array, Array, Array]:
    """dx = r (h - sum(h) / M - xhat sum(h xhat) / M); dgamma = sum of g xhat, dbeta = sum of g."""
    gamma = problem.parameters(vectors, x.dtype)
    centred, deviation = statistics(problem, x)
    xhat, h = centred / deviation, (g * gamma).reshape(centred.shape)
    a, b = (values.sum(ALL_VALUES, keepdims=True) for values in (h, h * xhat))
    with np.errstate(divide="ignore"):
        h -= a / problem.count
        dx = (h - xhat * (b / problem.count)) / deviation
    dgamma, dbeta = (values.sum(axis=(1, 2)) for values in (g * xhat.reshape(x.shape), g))
    return dx.reshape(x.shape), dgamma, dbeta
