"""Batch normalization: statistics of a batch, the normalization, and its gradient, each for itself.

With sums over all n pixels of a batch, one channel by itself, ``r = 1 / sqrt(variance + epsilon)`` and f a neuron:

Statistics           ``mean = sum x / n``, ``variance = m2 / n``, ``m2 = sum (x - mean)**2``
Forward              ``xhat = (x - mean) * r``, ``z = gamma * xhat + beta``, ``y = f(z)``
Statistics gradient  ``g' = g * f'(z)``, ``dbeta = sum g'``, ``dgamma = sum g' * xhat``
Gradient             ``dx = gamma * r * (g' - dbeta / n - xhat * dgamma / n)``; frozen: ``gamma * r * g'``

A batch may come in parts: statistics and sums of one call are given to the next, and are the same for every partition
and order, but for rounding. Statistics are count, mean and m2, merged as Chan does, with the first pixel of each call
as its shift: nothing cancels where a mean is large, and a constant channel has m2 = 0 exactly [choice].

Source: MPSCNNBatchNormalizationStatistics, MPSCNNBatchNormalization, MPSCNNBatchNormalizationStatisticsGradient,
MPSCNNBatchNormalizationGradient in ``MPSCNNBatchNormalization.h``: formulas of the first two, and what the last two
compute [doc]; the gradient's formulas [math].
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from mpsref import codecs, operations, registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import integer, real
from mpsref.errors import OrderError, ShapeError
from mpsref.kernels import batch_normalization_formulas as formulas
from mpsref.kernels import batch_normalization_problems as problems
from mpsref.kernels.batch_normalization_problems import BatchGradientSums, BatchStatistics
from mpsref.kernels.neuron import Neuron, neuron_codec
from mpsref.kernels.normalization import FLT_MIN
from mpsref.kernels.posing import posed
from mpsref.operations import Declaration, Formula, OperationKey

__all__ = ["BatchGradientSums", "BatchNormalization", "BatchStatistics"]

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


class BatchNormalization(operations.Spec):
    """Batch normalization of images (N, H, W, C); statistics and parameters are vectors (C,).

    ``epsilon`` is added to the variance, under the root. ``neuron`` is applied to the result of the normalization.

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

    epsilon: float = field(default=FLT_MIN, metadata={"codec": codecs.number("eps")})
    neuron: Neuron | None = field(default=None, metadata={"codec": neuron_codec()})

    problems: ClassVar = {
        kind.method: kind
        for kind in (problems.Statistics, problems.Forward, problems.StatisticsGradient, problems.Gradient)
    }

    def __post_init__(self) -> None:
        """Check the parameters."""
        object.__setattr__(self, "epsilon", real("epsilon", self.epsilon, low=0))
        if self.neuron is not None and not isinstance(self.neuron, Neuron):
            raise TypeError(f"neuron is {self.neuron!r}; it must be an mpsref.Neuron or None")

    @property
    def activates(self) -> bool:
        """Whether there is a neuron that changes anything."""
        return self.neuron is not None and self.neuron.type != "none"

    def statistics(
        self, x: Any, state: BatchStatistics | None = None, *, out: Any = None, backend: Any = None
    ) -> BatchStatistics:
        """Return the statistics of all pixels of ``x``, and of those that are in ``state``, which is not changed.

        Without any pixels n is 0, and mean and m2 are zeros. ``out`` is (mean, m2).
        Raises ``ValueError`` or ``TypeError`` for what does not fit.
        """
        x = arrays.as_image("x", x)
        count, earlier = _earlier("state", state, BatchStatistics, x)
        if count:
            problems.not_negative("state.m2", earlier["m2"])
        problem = posed(problems.Statistics, self, x.shape, count)
        return BatchStatistics(count + problem.pixels, *_sums(problem, {"x": x}, earlier, out, backend))

    def forward(
        self,
        x: Any,
        mean: Any,
        variance: Any,
        gamma: Any = None,
        beta: Any = None,
        *,
        out: Any = None,
        backend: Any = None,
    ) -> Array:
        """Return y in the shape and dtype of ``x``; without ``gamma`` it is 1, without ``beta`` 0.

        Raises ``ShapeError`` for vectors of another length than C, ``ValueError`` for a negative variance.
        """
        x = arrays.as_image("x", x)
        given = _vectors(x, mean=mean, variance=variance, gamma=gamma, beta=beta)
        problem = posed(problems.Forward, self, x.shape, gamma is not None, beta is not None)
        return _image(problem, {"x": x, **given}, out, backend)

    def statistics_gradient(
        self,
        g: Any,
        x: Any,
        mean: Any,
        variance: Any,
        gamma: Any = None,
        beta: Any = None,
        state: BatchGradientSums | None = None,
        *,
        out: Any = None,
        backend: Any = None,
    ) -> BatchGradientSums:
        """Return dbeta and dgamma, sums over all pixels of ``g`` = dL/dy, and over those in ``state``, left unchanged.

        ``x``, ``mean`` and the others are what the forward pass had. ``out`` is (dbeta, dgamma). Errors as in
        :meth:`forward`, and ``ShapeError`` where the shapes of ``g`` and ``x`` differ.
        """
        g, x = _two_images(g, x)
        given = _vectors(x, g, mean=mean, variance=variance, gamma=gamma, beta=beta)
        count, earlier = _earlier("state", state, BatchGradientSums, x, g)
        problem = posed(problems.StatisticsGradient, self, x.shape, count, gamma is not None, beta is not None)
        sums = _sums(problem, {"g": g, "x": x, **given}, earlier, out, backend)
        return BatchGradientSums(count + problem.pixels, *sums)

    def gradient(
        self,
        g: Any,
        x: Any,
        mean: Any,
        variance: Any,
        gamma: Any = None,
        beta: Any = None,
        sums: BatchGradientSums | None = None,
        *,
        out: Any = None,
        backend: Any = None,
    ) -> Array:
        """Return dL/dx in the dtype of ``g``, with the ``sums`` of the whole batch.

        Without ``sums``, mean and variance are constants that do not depend on x. Errors as in
        :meth:`statistics_gradient`, and ``OrderError`` for sums over no pixels.
        """
        g, x = _two_images(g, x)
        given = _vectors(x, g, mean=mean, variance=variance, gamma=gamma, beta=beta)
        count, earlier = _earlier("sums", sums, BatchGradientSums, x, g)
        if sums is not None and not count:
            raise OrderError("sums.n is 0; call statistics_gradient on every part of the batch before gradient")
        problem = posed(problems.Gradient, self, x.shape, count, gamma is not None, beta is not None)
        return _image(problem, {"g": g, "x": x, **given, **earlier}, out, backend)


def _two_images(g: Any, x: Any) -> tuple[Array, Array]:
    g, x = arrays.as_image("g", g), arrays.as_image("x", x)
    if g.shape != x.shape:
        raise ShapeError(f"g has shape {g.shape} and x {x.shape}; both must be the same")
    return g, x


def _vectors(*pictures: Array, **vectors: Any) -> dict[str, Array]:
    """Return vectors by name, checked; gamma and beta are left out where they are ``None``.

    One that fits as it is comes back itself: then an ``out`` that overlaps it is noticed, and no time is lost.
    """
    wide = _wide(pictures)
    channels = pictures[0].shape[3]
    given = {}
    for name, vector in vectors.items():
        if type(vector) is np.ndarray and vector.dtype == wide and vector.shape == (channels,):
            given[name] = vector
        elif vector is not None or name not in ("gamma", "beta"):
            given[name] = arrays.as_vector(name, vector, (channels,), *pictures)
    if "variance" in given:
        problems.not_negative("variance", given["variance"])
    return given


def _wide(pictures: tuple[Array, ...]) -> np.dtype[Any]:
    """Return the dtype of vectors beside these images."""
    return DOUBLE if max([picture.itemsize for picture in pictures]) == 8 else SINGLE


def _earlier(name: str, state: Any, kind: type[Any], *pictures: Array) -> tuple[int, dict[str, Array]]:
    """Return the count and the two vectors of ``state``, checked; none of them for ``None``."""
    if state is None:
        return 0, {}
    if not isinstance(state, kind):
        raise TypeError(f"{name} is of type {type(state).__name__}; it must be a {kind.__name__} or None")
    count, *vectors = state
    names = kind._fields[1:]
    checked = _vectors(*pictures, **{f"{name}.{key}": vector for key, vector in zip(names, vectors, strict=True)})
    return integer(f"{name}.n", count, low=0), dict(zip(names, checked.values(), strict=True))


def _sums(
    problem: problems.Reduction, given: dict[str, Array], earlier: dict[str, Array], out: Any, backend: Any
) -> tuple[Array, Array]:
    """Add up; a batch without images leaves the earlier sums as they are."""
    read = given | earlier
    first, second = registry.run(problem, *[read[name] for name in problem.input_shapes], out=out, backend=backend)
    if not problem.pixels and problem.count:
        first[...], second[...] = earlier.values()
    return first, second


def _image(problem: problems.BatchProblem, given: dict[str, Array], out: Any, backend: Any) -> Array:
    return registry.run_one(problem, *[given[name] for name in problem.input_shapes], out=out, backend=backend)


REFERENCE: dict[OperationKey, Formula] = {
    (BatchNormalization, "statistics"): formulas.statistics,
    (BatchNormalization, "forward"): formulas.forward,
    (BatchNormalization, "statistics_gradient"): formulas.statistics_gradient,
    (BatchNormalization, "gradient"): formulas.gradient,
}
TERMS: dict[OperationKey, Formula] = {
    (BatchNormalization, "statistics"): formulas.statistics_terms,
    (BatchNormalization, "forward"): formulas.forward_terms,
    (BatchNormalization, "statistics_gradient"): formulas.statistics_gradient_terms,
    (BatchNormalization, "gradient"): formulas.gradient_terms,
}
SPECS = (BatchNormalization,)

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
