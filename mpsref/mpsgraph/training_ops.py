"""The loss of a classification, optimizers, and dropout.

Softmax cross entropy  ``reduction(sum over axis of -labels ln softmax(source))``; ``p sum(labels) - labels``, p the
                       softmax, times the incoming gradient, divided by the number of rows for MEAN
Gradient descent       ``values - learning_rate gradient``
Adam                   ``m = b1 m + (1 - b1) g``, ``u = b2 u + (1 - b2) g**2``, ``maxu = max(maxu, u)``,
                       ``values - lr_t m / (sqrt(u or maxu) + epsilon)``,
                       ``lr_t = lr sqrt(1 - b2**t) / (1 - b1**t)``
Dropout                elements are 0 with the probability rate, the others are multiplied by ``1 / (1 - rate)``
                       [choice mpsgraph-dropout-scale]

The gradient of the loss is the derivative of its formula, also for labels whose sum is not 1 [choice
mpsgraph-labels-sum]; that of MPSCNNLoss is ``p - labels``. SUM and MEAN are over all other axes [doc], and MEAN divides
by the number of rows [math]. The loss of each row lacks the axis, a sum or a mean has no axes [choice
mpsgraph-loss-shape]. The logarithm is that of log-softmax: a softmax that is 0 in float32 has a finite one.

Epsilon is outside of the root, which is not corrected [doc, choice mpsgraph-adam-epsilon].

Source: ``MPSGraphLossOps.h``, ``MPSGraphOptimizerOps.h``, ``MPSGraphRandomOps.h``.
"""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import number
from mpsref.backend import BackendLike
from mpsref.errors import ShapeError
from mpsref.kernels import Adam, Dropout, LogSoftMax, Loss, StochasticGradientDescent
from mpsref.mpsgraph.arithmetic_ops import multiplication, reduction_sum
from mpsref.mpsgraph.descriptors import LossReductionType, member
from mpsref.mpsgraph.function import Tensor, axes_of, flat, from_last, function, last, not_empty, same_shape, scalar

LOSS = "MPSGraphLossOps.h"
OPTIMIZER = "MPSGraphOptimizerOps.h"
RANDOM = "MPSGraphRandomOps.h"

CROSS_ENTROPY, LOG_SOFTMAX = Loss("softmaxcrossentropy"), LogSoftMax()

Reduction = LossReductionType | str | int


@function("softMaxCrossEntropyWithSourceTensor:labelsTensor:axis:reductionType:name:", "11.0", LOSS, "source", "labels")
def softmax_cross_entropy(
    source: Tensor, labels: Tensor, axis: int, reduction_type: Reduction, *, backend: BackendLike = None
) -> Array:
    """Compute the cross entropy of the softmax of logits.

    Parameters
    ----------
    source, labels : array_like
        Logits, and the probabilities that they should have, of one shape.
    axis : int
        The axis of the classes; a negative one counts from the end.
    reduction_type : LossReductionType, or its name or value
        What becomes of the losses of the rows.

    Returns
    -------
    ndarray
        For NONE of the shape of the source without the axis, else of rank 0.

    Examples
    --------
    >>> logits, labels = np.float32([[0, 0], [0, 200]]), np.float32([[1, 0], [1, 0]])
    >>> softmax_cross_entropy(logits, labels, 1, "none")
    array([  0.6931472, 200.       ], dtype=float32)
    >>> print(softmax_cross_entropy(logits, labels, 1, "mean"))
    100.34657
    """
    same_shape(source=source, labels=labels)
    axes, reduction = axes_of("axis", axis, source.ndim), member("reduction_type", reduction_type, LossReductionType)
    not_empty(source=source)
    images = (last(one, axes).transpose(2, 0, 1, 3) for one in (source, labels))
    rows = CROSS_ENTROPY.forward(*images, backend=backend).ravel()
    if reduction == LossReductionType.NONE:
        return rows.reshape(tuple(np.delete(source.shape, axes)))
    total = reduction_sum(rows, 0, backend=backend).reshape(())
    return total / rows.size if reduction == LossReductionType.MEAN else total


@function(
    "softMaxCrossEntropyGradientWithIncomingGradientTensor:sourceTensor:labelsTensor:axis:reductionType:name:",
    "11.0", LOSS, "incoming_gradient", "source", "labels", tag="math",
)  # fmt: skip
def softmax_cross_entropy_gradient(
    incoming_gradient: Tensor,
    source: Tensor,
    labels: Tensor,
    axis: int,
    reduction_type: Reduction,
    *,
    backend: BackendLike = None,
) -> Array:
    """Compute the gradient of :func:`softmax_cross_entropy` for its source.

    Parameters
    ----------
    incoming_gradient : array_like
        Gradient of the loss: one number, or for NONE one for each row, in the shape of the source without the axis, or
        with length 1 there.
    source, labels, axis, reduction_type
        As in the forward pass.

    Returns
    -------
    ndarray
        Of the shape of the source.

    Examples
    --------
    >>> logits, labels = np.float32([[0, 0], [0, 0]]), np.float32([[1, 0], [1, 3]])
    >>> softmax_cross_entropy_gradient(np.float32(1), logits, labels, 1, "sum").round(6).tolist()
    [[-0.5, 0.5], [1.0, -1.0]]
    """
    same_shape(source=source, labels=labels)
    axes, reduction = axes_of("axis", axis, source.ndim), member("reduction_type", reduction_type, LossReductionType)
    not_empty(source=source)
    rows = source.size // source.shape[axes[0]]
    if incoming_gradient.size not in ({1, rows} if reduction == LossReductionType.NONE else {1}):
        legal = f"one element, or {rows}, one for each row" if reduction == LossReductionType.NONE else "one element"
        raise ShapeError(f"incoming_gradient has shape {incoming_gradient.shape}; it must have {legal}")
    each = np.broadcast_to(incoming_gradient.ravel(), rows)[:, None]
    if reduction == LossReductionType.MEAN:
        each = each / each.dtype.type(rows)
    x, t = last(source, axes), last(labels, axes)
    weighted = -multiplication(each, t.reshape(rows, -1), backend=backend).reshape(t.shape)
    logarithms = LOG_SOFTMAX.forward(x, backend=backend)
    return from_last(LOG_SOFTMAX.gradient(weighted, logarithms, backend=backend), axes, source.shape)


# --- optimizers -------------------------------------------------------------------------------------------------------


@function(
    "stochasticGradientDescentWithLearningRateTensor:valuesTensor:gradientTensor:name:",
    "11.0", OPTIMIZER, "values", "gradient",
)  # fmt: skip
def stochastic_gradient_descent(
    learning_rate: float | Tensor, values: Tensor, gradient: Tensor, *, backend: BackendLike = None
) -> Array:
    """Compute a step of gradient descent.

    Parameters
    ----------
    learning_rate : float
        A number, or a tensor with one element.
    values, gradient : array_like
        Values, and their gradient.

    Returns
    -------
    ndarray
        The new values.

    Examples
    --------
    >>> stochastic_gradient_descent(0.5, np.float32([1, -2]), np.float32([2, -1])).tolist()
    [0.0, -1.5]
    """
    same_shape(values=values, gradient=gradient)
    step = StochasticGradientDescent(number("learning_rate", scalar("learning_rate", learning_rate)))
    return step.step(gradient, values, backend=backend)[0]


def _adam(
    rate: float,
    beta1: object,
    beta2: object,
    epsilon: object,
    values: Array,
    momentum: Array,
    velocity: Array,
    maximum_velocity: Array | None,
    gradient: Array,
    backend: BackendLike,
) -> tuple[Array, ...]:
    """Compute a step with a rate that holds the corrections, which the first step of the kernel would multiply by."""
    b1 = number("beta1", scalar("beta1", beta1), 0, 1, below=True)
    b2 = number("beta2", scalar("beta2", beta2), 0, 1, below=True)
    same_shape(values=values, momentum=momentum, velocity=velocity, gradient=gradient)
    if maximum_velocity is not None:
        same_shape(values=values, maximum_velocity=maximum_velocity)
    uncorrected = number("the learning rate", rate) * (1 - b1) / math.sqrt(1 - b2)
    adam = Adam(uncorrected, beta1=b1, beta2=b2, epsilon=number("epsilon", scalar("epsilon", epsilon), 0))
    results = adam.step(gradient, values, momentum, velocity, maximum_velocity, backend=backend)
    return tuple(result for result in results if result is not None)


@function(
    "adamWithLearningRateTensor:beta1Tensor:beta2Tensor:epsilonTensor:beta1PowerTensor:beta2PowerTensor:valuesTensor:"
    "momentumTensor:velocityTensor:maximumVelocityTensor:gradientTensor:name:",
    "11.0", OPTIMIZER, "values", "momentum", "velocity", "maximum_velocity", "gradient",
)  # fmt: skip
def adam(
    learning_rate: float | Tensor,
    beta1: float | Tensor,
    beta2: float | Tensor,
    epsilon: float | Tensor,
    beta1_power: float | Tensor,
    beta2_power: float | Tensor,
    values: Tensor,
    momentum: Tensor,
    velocity: Tensor,
    maximum_velocity: Tensor | None,
    gradient: Tensor,
    *,
    backend: BackendLike = None,
) -> tuple[Array, ...]:
    """Compute a step of Adam, or with a maximum velocity of AMSGrad.

    Parameters
    ----------
    learning_rate, beta1, beta2, epsilon : float
        Numbers, or tensors with one element; beta1 and beta2 in [0, 1).
    beta1_power, beta2_power : float
        ``beta1**t`` and ``beta2**t`` of step t, counted from 1.
    values, momentum, velocity : array_like
        Values and moments, these are 0 before the first step.
    maximum_velocity : array_like or None
        The largest velocity so far.
    gradient : array_like
        Gradient of the values.

    Returns
    -------
    tuple of ndarray
        The new values, momentum and velocity, and the maximum velocity if it is given.

    Examples
    --------
    >>> zero = np.zeros(1, np.float32)
    >>> values, m, u = adam(0.5, 0.5, 0.75, 0, 0.5, 0.75, np.float32([1]), zero, zero, None, np.float32([4]))
    >>> values.tolist(), m.tolist(), u.tolist()
    ([0.5], [2.0], [4.0])
    """
    powers = {"beta1_power": beta1_power, "beta2_power": beta2_power}
    p1, p2 = (number(name, scalar(name, power), 0, 1, below=True) for name, power in powers.items())
    rate = scalar("learning_rate", learning_rate) * math.sqrt(1 - p2) / (1 - p1)
    moments = momentum, velocity, maximum_velocity
    return _adam(rate, beta1, beta2, epsilon, values, *moments, gradient, backend)


@function(
    "adamWithCurrentLearningRateTensor:beta1Tensor:beta2Tensor:epsilonTensor:valuesTensor:momentumTensor:"
    "velocityTensor:maximumVelocityTensor:gradientTensor:name:",
    "11.0", OPTIMIZER, "values", "momentum", "velocity", "maximum_velocity", "gradient",
)  # fmt: skip
def adam_with_current_learning_rate(
    current_learning_rate: float | Tensor,
    beta1: float | Tensor,
    beta2: float | Tensor,
    epsilon: float | Tensor,
    values: Tensor,
    momentum: Tensor,
    velocity: Tensor,
    maximum_velocity: Tensor | None,
    gradient: Tensor,
    *,
    backend: BackendLike = None,
) -> tuple[Array, ...]:
    """Compute a step of Adam with a learning rate ``lr_t`` that holds the corrections.

    Parameters
    ----------
    current_learning_rate : float
        A number, or a tensor with one element.
    beta1, beta2, epsilon, values, momentum, velocity, maximum_velocity, gradient
        As in :func:`adam`.

    Returns
    -------
    tuple of ndarray
        As of :func:`adam`.

    Examples
    --------
    >>> zero = np.zeros(1, np.float32)
    >>> adam_with_current_learning_rate(0.5, 0.5, 0.75, 0, np.float32([1]), zero, zero, None, np.float32([4]))[0]
    array([0.5], dtype=float32)
    """
    rate, moments = scalar("current_learning_rate", current_learning_rate), (momentum, velocity, maximum_velocity)
    return _adam(rate, beta1, beta2, epsilon, values, *moments, gradient, backend)


@function("dropoutTensor:rate:name:", "11.0", RANDOM, "tensor")
def dropout(tensor: Tensor, rate: float, *, seed: int = 0, backend: BackendLike = None) -> Array:
    """Set elements to 0 at random.

    Apple's generator keeps its state to itself: only statistics of the result can be compared, not which elements are
    0. Here the seed decides.

    Parameters
    ----------
    rate : float
        The probability of 0, in (0, 1).
    seed : int, optional
        In [0, 2**64).

    Examples
    --------
    >>> dropout(np.ones(8, np.float32), 0.5, seed=1).tolist()
    [0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0]
    """
    kept = 1 - number("rate", scalar("rate", rate), 0, 1, below=True, above=True)
    image, drop = flat(tensor), Dropout(kept, seed)
    if not tensor.size:
        return tensor.copy()  # type: ignore[no-any-return]
    return drop.forward(image, drop.mask(image.shape, backend=backend), backend=backend).reshape(tensor.shape)
