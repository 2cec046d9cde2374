"""Mean, variance, and the normalization with them, of any axes; and the gradients.

With the mean and the variance over some axes, whose lengths they keep as 1, N elements, ``r = 1 / sqrt(variance +
epsilon)`` and ``h = (tensor - mean) r``:

Variance        ``sum of (tensor - mean)**2 / N``: biased [obs mpsgraph-variance]
Normalization   ``h gamma + beta``; batch normalization of NHWC has the axes 0, 1, 2, instance normalization 1, 2 [doc],
                and layer normalization 3 [math]
Gamma, beta     ``sum of g h`` and ``sum of g``, over the reduction axes
Source          ``g' = g gamma``; ``r (g' - sum(g') / N - h sum(g' h) / N)``, with sums over the axes of the mean

There is no momentum and there are no running statistics. The gradients take the variance itself and add epsilon to it
[obs mpsgraph-gradient-epsilon].

The gradient for the source is the derivative, for any gamma [math]. Apple's operation is given the gradients of gamma
and beta, which are the sums of this formula, times 1 / gamma, if gamma is constant along the axes. What it computes
where it is not, or from other sums, or without them, is not documented [choice mpsgraph-normalization-sums].

Source: ``MPSGraphNormalizationOps.h``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import real
from mpsref.backend import BackendLike
from mpsref.errors import ShapeError
from mpsref.kernels import BatchNormalization
from mpsref.mpsgraph.arithmetic_ops import addition, multiplication, reduction_sum, subtraction
from mpsref.mpsgraph.function import Tensor, axes_of, first, from_first, function, kept, not_empty, same_shape

HEADER = "MPSGraphNormalizationOps.h"
STATISTICS = BatchNormalization()

Axes: TypeAlias = int | Sequence[int]


def _axes_of_statistics(tensor: Array, mean: Array, variance: Array) -> tuple[int, ...]:
    """Return the axes on which mean and variance have length 1."""
    same_shape(mean=mean, variance=variance)
    fits = mean.ndim == tensor.ndim and all(
        n in (1, length) for n, length in zip(mean.shape, tensor.shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"mean has shape {mean.shape} and the tensor {tensor.shape}; mean must have the same rank, and length 1 on "
            "the axes over which it was taken"
        )
    return tuple(axis for axis, length in enumerate(mean.shape) if length == 1)


def _checked(name: str, parameter: Array | None, tensor: Array) -> None:
    """Raise ``ShapeError`` unless a parameter broadcasts to the tensor."""
    if parameter is not None and not (
        parameter.ndim <= tensor.ndim
        and all(n in (1, length) for n, length in zip(parameter.shape[::-1], tensor.shape[::-1], strict=False))
    ):
        raise ShapeError(f"{name} has shape {parameter.shape}; it must broadcast to the tensor's {tensor.shape}")


@function("meanOfTensor:axes:name:", "11.0", HEADER, "tensor")
def mean_of_tensor(tensor: Tensor, axes: Axes, *, backend: BackendLike = None) -> Array:
    """Take the mean over axes, which keep length 1.

    Examples
    --------
    >>> import numpy as np
    >>> mean_of_tensor(np.float32([[1, 3], [5, 9]]), [1]).tolist()
    [[2.0], [7.0]]
    """
    axes = axes_of("axes", axes, tensor.ndim)
    not_empty(tensor=tensor)
    mean = STATISTICS.statistics(first(tensor, axes), backend=backend).mean
    return from_first(mean, axes, kept(tensor.shape, axes))


@function("varianceOfTensor:meanTensor:axes:name:", "11.0", HEADER, "tensor", "mean")
def variance_of_tensor(tensor: Tensor, axes: Axes, mean: Tensor | None = None, *, backend: BackendLike = None) -> Array:
    """Take the biased variance over axes, which keep length 1; ``varianceOfTensor:axes:name:`` takes it without mean.

    Parameters
    ----------
    mean : array_like, optional
        The mean over the axes; default: it is computed.

    Examples
    --------
    >>> import numpy as np
    >>> variance_of_tensor(np.float32([[1, 3], [5, 9]]), [1]).tolist()
    [[1.0], [4.0]]
    """
    axes = axes_of("axes", axes, tensor.ndim)
    not_empty(tensor=tensor)
    if mean is None:
        seen = STATISTICS.statistics(first(tensor, axes), backend=backend)
        return from_first(seen.m2 / seen.n, axes, kept(tensor.shape, axes))
    _axes_of_statistics(tensor, mean, mean)
    distance = subtraction(tensor, mean, backend=backend)
    return mean_of_tensor(multiplication(distance, distance, backend=backend), axes, backend=backend)


@function(
    "normalizationWithTensor:meanTensor:varianceTensor:gammaTensor:betaTensor:epsilon:name:",
    "11.0", HEADER, "tensor", "mean", "variance", "gamma", "beta",
)  # fmt: skip
def normalization(
    tensor: Tensor,
    mean: Tensor,
    variance: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: float = 0.0,
    *,
    backend: BackendLike = None,
) -> Array:
    """Normalize a tensor: ``(tensor - mean) / sqrt(variance + epsilon) * gamma + beta``.

    Parameters
    ----------
    mean, variance : array_like
        Statistics, of length 1 on the axes over which they were taken; the variance is not negative.
    gamma, beta : array_like, optional
        Scale and shift, which broadcast to the tensor; default: 1 and 0.
    epsilon : float, optional
        At least 0, added to the variance.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.float32([[1, 3], [5, 9]])
    >>> normalization(rows, mean_of_tensor(rows, [1]), variance_of_tensor(rows, [1]), np.float32([2, 4])).tolist()
    [[-2.0, 4.0], [-2.0, 4.0]]
    """
    axes = _axes_of_statistics(tensor, mean, variance)
    _checked("gamma", gamma, tensor)
    _checked("beta", beta, tensor)
    not_empty(tensor=tensor)
    norm = BatchNormalization(real("epsilon", epsilon, low=0))
    image = norm.forward(first(tensor, axes), mean.ravel(), variance.ravel(), backend=backend)
    result = from_first(image, axes, tensor.shape)
    if gamma is not None:
        result = multiplication(result, gamma, backend=backend)
    return result if beta is None else addition(result, beta, backend=backend)


@function(
    "normalizationGammaGradientWithIncomingGradientTensor:sourceTensor:meanTensor:varianceTensor:reductionAxes:epsilon:name:",
    "11.0", HEADER, "incoming_gradient", "source", "mean", "variance",
)  # fmt: skip
def normalization_gamma_gradient(
    incoming_gradient: Tensor,
    source: Tensor,
    mean: Tensor,
    variance: Tensor,
    reduction_axes: Axes,
    epsilon: float = 0.0,
    *,
    backend: BackendLike = None,
) -> Array:
    """Compute the gradient for gamma.

    Parameters
    ----------
    incoming_gradient, source : array_like
        Gradient of the result, and the tensor that was normalized.
    mean, variance, epsilon
        As in :func:`normalization`.
    reduction_axes : int or sequence of int
        The axes on which gamma has length 1.

    Returns
    -------
    ndarray
        Of length 1 on the reduction axes.

    Examples
    --------
    >>> import numpy as np
    >>> rows, g = np.float32([[1, 3], [5, 9]]), np.float32([[1, 2], [3, 4]])
    >>> normalization_gamma_gradient(g, rows, mean_of_tensor(rows, [1]), variance_of_tensor(rows, [1]), [0]).tolist()
    [[-4.0, 6.0]]
    """
    same_shape(incoming_gradient=incoming_gradient, source=source)
    xhat = normalization(source, mean, variance, None, None, epsilon, backend=backend)
    return reduction_sum(multiplication(incoming_gradient, xhat, backend=backend), reduction_axes, backend=backend)


@function(
    "normalizationBetaGradientWithIncomingGradientTensor:sourceTensor:reductionAxes:name:",
    "11.0", HEADER, "incoming_gradient", "source",
)  # fmt: skip
def normalization_beta_gradient(
    incoming_gradient: Tensor, source: Tensor, reduction_axes: Axes, *, backend: BackendLike = None
) -> Array:
    """Compute the gradient for beta.

    Parameters
    ----------
    incoming_gradient, source : array_like
        Gradient of the result, and the tensor that was normalized, of which only the shape counts.
    reduction_axes : int or sequence of int
        The axes on which beta has length 1.

    Returns
    -------
    ndarray
        Of length 1 on the reduction axes.

    Examples
    --------
    >>> import numpy as np
    >>> normalization_beta_gradient(np.float32([[1, 2], [3, 4]]), np.zeros((2, 2), np.float32), [0]).tolist()
    [[4.0, 6.0]]
    """
    same_shape(incoming_gradient=incoming_gradient, source=source)
    return reduction_sum(incoming_gradient, reduction_axes, backend=backend)


@function(
    "normalizationGradientWithIncomingGradientTensor:sourceTensor:meanTensor:varianceTensor:gammaTensor:"
    "gammaGradientTensor:betaGradientTensor:reductionAxes:epsilon:name:",
    "11.0", HEADER, "incoming_gradient", "source", "mean", "variance", "gamma", "gamma_gradient", "beta_gradient",
    tag="math",
)  # fmt: skip
def normalization_gradient(
    incoming_gradient: Tensor,
    source: Tensor,
    mean: Tensor,
    variance: Tensor,
    gamma: Tensor | None,
    gamma_gradient: Tensor | None,
    beta_gradient: Tensor | None,
    reduction_axes: Axes,
    epsilon: float = 0.0,
    *,
    backend: BackendLike = None,
) -> Array:
    """Compute the gradient for the source, through the mean and the variance, too.

    Parameters
    ----------
    incoming_gradient, source : array_like
        Gradient of the result, and the tensor that was normalized.
    mean, variance, gamma, epsilon
        As in :func:`normalization`.
    gamma_gradient, beta_gradient : array_like or None
        The gradients of gamma and beta. Their values are not read: the sums of the formula are computed from the
        tensors.
    reduction_axes : int or sequence of int
        The axes of those gradients. The axes of the sums are those on which ``mean`` has length 1.

    Examples
    --------
    >>> import numpy as np
    >>> rows, g = np.float32([[1, 3], [5, 9]]), np.float32([[1, 2], [4, 0]])
    >>> mean, variance = mean_of_tensor(rows, [1]), variance_of_tensor(rows, [1])
    >>> normalization_gradient(g, rows, mean, variance, None, None, None, [1], epsilon=3).round(3)
    array([[-0.188,  0.188],
           [ 0.324, -0.324]], dtype=float32)
    """
    same_shape(incoming_gradient=incoming_gradient, source=source)
    axes = _axes_of_statistics(source, mean, variance)
    axes_of("reduction_axes", reduction_axes, source.ndim)
    for name, parameter in {"gamma": gamma, "gamma_gradient": gamma_gradient, "beta_gradient": beta_gradient}.items():
        _checked(name, parameter, source)
    not_empty(source=source)
    g = incoming_gradient if gamma is None else multiplication(incoming_gradient, gamma, backend=backend)
    norm, given = BatchNormalization(real("epsilon", epsilon, low=0)), (mean.ravel(), variance.ravel())
    images = first(g, axes), first(source, axes)
    sums = norm.statistics_gradient(*images, *given, backend=backend)
    return from_first(norm.gradient(*images, *given, sums=sums, backend=backend), axes, source.shape)
