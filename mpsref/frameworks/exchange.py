"""What frameworks compute in one call, or take in another form: weights, training batch normalization, softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import choice
from mpsref.backend import Backend
from mpsref.kernels import BatchNormalization
from mpsref.kernels.convolution_transpose import exchanged

WEIGHT_LAYOUTS = ("OHWI", "OIHW", "HWIO", "HWCM")
"""mpsref and MPS; PyTorch and ONNX; TensorFlow and JAX; depthwise of TensorFlow: channel, multiplier."""


def weights_to(weights: Array, layout: str, groups: int = 1, transposed: bool = False) -> Array:
    """Return weights of mpsref in the layout of a framework.

    Parameters
    ----------
    weights : ndarray, shape (Co, kH, kW, Ci / groups)
        Weights in the order OHWI.
    layout : {"OHWI", "OIHW", "HWIO", "HWCM"}
        The order of the axes. "HWCM" is for depthwise convolution, ``groups = Ci``.
    groups : int
        Number of groups of channels.
    transposed : bool
        Whether the weights are those of a transposed convolution. PyTorch, ONNX and TensorFlow describe it as the
        gradient of a convolution from Co to Ci channels: input and output channels change places within each group,
        and the kernel is rotated by 180 degrees.

    Returns
    -------
    ndarray
        A view where possible.

    Examples
    --------
    >>> weights_to(np.zeros((8, 3, 2, 4)), "OIHW").shape
    (8, 4, 3, 2)
    >>> weights_to(np.zeros((6, 3, 2, 1)), "HWCM", groups=3).shape
    (3, 2, 3, 2)
    >>> weights_to(np.zeros((8, 3, 2, 4)), "OIHW", groups=2, transposed=True).shape
    (8, 4, 3, 2)
    """
    choice("layout", layout, WEIGHT_LAYOUTS)
    own = exchanged(weights, groups) if transposed else weights
    if layout == "HWCM":
        outputs, height, width, inputs = own.shape
        if inputs != 1 or outputs % groups:
            raise ValueError(
                f'weights has shape {weights.shape} with groups {groups}; the layout "HWCM" is for depthwise weights '
                "(Co, kH, kW, 1), and groups divides Co"
            )
        return own.reshape(groups, outputs // groups, height, width).transpose(2, 3, 0, 1)
    return own.transpose(["OHWI".index(letter) for letter in layout])


def weights_from(weights: Array, layout: str, groups: int = 1, transposed: bool = False) -> Array:
    """Return weights of a framework, or their gradient, in the layout of mpsref: the inverse of :func:`weights_to`.

    Parameters
    ----------
    weights : ndarray
        Weights in the order ``layout``.
    layout, groups, transposed
        As in :func:`weights_to`.

    Returns
    -------
    ndarray, shape (Co, kH, kW, Ci / groups)
        A view where possible.

    Examples
    --------
    >>> weights = np.arange(96.0).reshape(4, 3, 2, 4)
    >>> other = weights_to(weights, "HWIO", groups=2, transposed=True)
    >>> np.array_equal(weights_from(other, "HWIO", groups=2, transposed=True), weights)
    True
    """
    choice("layout", layout, WEIGHT_LAYOUTS)
    if layout == "HWCM":
        height, width, channels, multiplier = weights.shape
        own = weights.transpose(2, 3, 0, 1).reshape(channels * multiplier, height, width, 1)
    else:
        own = weights.transpose([layout.index(letter) for letter in "OHWI"])
    return exchanged(own, groups) if transposed else own


class TrainingResult(NamedTuple):
    """What a training step of batch normalization returns."""

    y: Array
    """Shape (N, H, W, C)."""
    dx: Array
    """Shape (N, H, W, C)."""
    dgamma: Array
    """Shape (C,)."""
    dbeta: Array
    """Shape (C,)."""


def training_batch_normalization(
    spec: BatchNormalization,
    x: ArrayLike,
    g: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    *,
    backend: str | Backend | None = None,
) -> TrainingResult:
    """Run the four operations of batch normalization as the one that frameworks have for training.

    Parameters
    ----------
    spec : BatchNormalization
        The layer.
    x, g : array_like, shape (N, H, W, C)
        Source image, and source gradient dL/dy.
    gamma, beta : array_like, shape (C,), optional
        Scale and shift; default: 1 and 0.
    backend : str or Backend, optional
        Where to compute; default: see :func:`mpsref.use_backend`.

    Returns
    -------
    TrainingResult
        The result, and the gradients for the image, for scale and for shift.

    Examples
    --------
    >>> x = np.array([1.0, 2, 4, 5]).reshape(2, 1, 2, 1)
    >>> result = training_batch_normalization(BatchNormalization(epsilon=1.5), x, x, [2.0], [0.5])
    >>> result.y.ravel().tolist(), result.dx.ravel().tolist()
    ([-1.5, -0.5, 1.5, 2.5], [-0.75, -0.375, 0.375, 0.75])
    """
    seen = spec.statistics(x, backend=backend)
    variance = seen.variance
    assert variance is not None
    y = spec.forward(x, seen.mean, variance, gamma, beta, backend=backend)
    sums = spec.statistics_gradient(g, x, seen.mean, variance, gamma, beta, backend=backend)
    dx = spec.gradient(g, x, seen.mean, variance, gamma, beta, sums, backend=backend)
    return TrainingResult(y, dx, sums.dgamma, sums.dbeta)


def logits(y: Array, logarithmic: bool = False) -> Array:
    """Return a source image whose softmax is ``y``, for frameworks that differentiate softmax from its source.

    Parameters
    ----------
    y : ndarray, shape (N, H, W, C)
        A result of :class:`mpsref.SoftMax`, or if ``logarithmic`` of :class:`mpsref.LogSoftMax`.
    logarithmic : bool
        Which of them.

    Returns
    -------
    ndarray, shape (N, H, W, C)
        The logarithm of the probabilities, whose exponentials sum to 1; minus infinity for the probability 0.

    Examples
    --------
    >>> logits(np.array([0.25, 0.75])).round(4).tolist()
    [-1.3863, -0.2877]
    """
    if logarithmic:
        return y
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(y, dtype=np.promote_types(y.dtype, np.float32)))


def per_image(gradients: Callable[..., tuple[Array, ...]], *images: Array) -> tuple[Array, ...]:
    """Call a function that sums gradients over the batch with one image at a time.

    Parameters
    ----------
    gradients : callable
        ``gradients(*images)`` returns gradients of parameters, summed over a batch.
    *images : ndarray, shape (N, H, W, C)
        Its arguments; a batch of one image is a view, in the layout of the whole.

    Returns
    -------
    tuple of ndarray
        Each gradient with a row for each image, as instance and group normalization of mpsref return them.

    Examples
    --------
    >>> sums, = per_image(lambda g: (g.sum(axis=(0, 1, 2)),), np.arange(4.0).reshape(2, 2, 1, 1))
    >>> sums.tolist()
    [[1.0], [5.0]]
    """
    rows = [gradients(*(image[k : k + 1] for image in images)) for k in range(len(images[0]))]
    return tuple(np.stack(column) for column in zip(*rows, strict=True))
