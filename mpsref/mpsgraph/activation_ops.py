"""ReLU, leaky ReLU, sigmoid and softmax, and their gradients, all of which take the source.

ReLU        ``max(x, 0)``; ``g`` where x > 0, else 0: the slope at 0 is 0 [choice mpsgraph-relu-slope]
Leaky ReLU  ``max(x, alpha x)`` [doc], with alpha > 1, too; the slope at 0 is alpha [choice mpsgraph-relu-slope]
Sigmoid     ``s = 1 / (1 + e**-x)``; ``g s (1 - s)``
Softmax     ``y = e**(x - m) / sum e**(x - m)`` along an axis, m the largest x; ``y (g - sum g y)``

The gradient of softmax takes "the input tensor" [doc], x, where that of MPSCNNSoftMax takes the result y. Public code
computes it by hand from y, so that nobody has seen which one it is [choice mpsgraph-softmax-source].

Source: ``MPSGraphActivationOps.h``.
"""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.backend import BackendLike
from mpsref.kernels import Neuron, SoftMax
from mpsref.mpsgraph.function import Tensor, axes_of, flat, from_last, function, last, not_empty, same_shape, scalar

HEADER = "MPSGraphActivationOps.h"

RELU, SIGMOID, SOFTMAX = Neuron("relu"), Neuron("sigmoid"), SoftMax()


def _value(neuron: Neuron, tensor: Array, backend: BackendLike) -> Array:
    return neuron.forward(flat(tensor), backend=backend).reshape(tensor.shape)


def _gradient(neuron: Neuron, incoming_gradient: Array, source: Array, backend: BackendLike) -> Array:
    same_shape(incoming_gradient=incoming_gradient, source=source)
    return neuron.gradient(flat(incoming_gradient), flat(source), backend=backend).reshape(source.shape)


def _negative_at_0(x: Array) -> Array:
    """Return an argument whose slope in a neuron of mpsref, which at 0 is that on the right, is that on the left."""
    return np.where(x == 0, x.dtype.type(-1), x)


@function("reLUWithTensor:name:", "11.0", HEADER, "tensor")
def relu(tensor: Tensor, *, backend: BackendLike = None) -> Array:
    """Replace negative numbers by 0.

    Examples
    --------
    >>> relu(np.float32([-2, 0, 3])).tolist()
    [-0.0, 0.0, 3.0]
    """
    return _value(RELU, tensor, backend)


@function("reLUGradientWithIncomingGradient:sourceTensor:name:", "11.0", HEADER, "incoming_gradient", "source")
def relu_gradient(incoming_gradient: Tensor, source: Tensor, *, backend: BackendLike = None) -> Array:
    """Compute the gradient of :func:`relu`.

    Parameters
    ----------
    incoming_gradient, source : array_like
        Gradient of the result, and the tensor of the forward pass.

    Examples
    --------
    >>> relu_gradient(np.float32([1, 10, 100]), np.float32([-2, 0, 3])).tolist()
    [0.0, 0.0, 100.0]
    """
    return _gradient(RELU, incoming_gradient, _negative_at_0(source), backend)


def _leaky(alpha: object) -> tuple[Neuron, int]:
    """Return the neuron, and the sign with which its argument is multiplied: the larger slope is on the right."""
    slope = scalar("alpha", alpha)
    return Neuron("relu", slope), -1 if slope > 1 else 1


@function("leakyReLUWithTensor:alpha:name:", "12.0", HEADER, "tensor")
def leaky_relu(tensor: Tensor, alpha: float, *, backend: BackendLike = None) -> Array:
    """Take the maximum of x and alpha x.

    Parameters
    ----------
    alpha : float
        A number, or a tensor with one element.

    Examples
    --------
    >>> leaky_relu(np.float32([-2, 3]), 0.5).tolist(), leaky_relu(np.float32([-2, 3]), 2).tolist()
    ([-1.0, 3.0], [-2.0, 6.0])
    """
    neuron, sign = _leaky(alpha)
    return sign * _value(neuron, sign * tensor, backend)


@function(
    "leakyReLUGradientWithIncomingGradient:sourceTensor:alphaTensor:name:",
    "12.0", HEADER, "incoming_gradient", "source",
)  # fmt: skip
def leaky_relu_gradient(
    incoming_gradient: Tensor, source: Tensor, alpha: float, *, backend: BackendLike = None
) -> Array:
    """Compute the gradient of :func:`leaky_relu`.

    Parameters
    ----------
    incoming_gradient, source : array_like
        Gradient of the result, and the tensor of the forward pass.
    alpha : float
        A number, or a tensor with one element.

    Examples
    --------
    >>> leaky_relu_gradient(np.float32([1, 2, 4]), np.float32([-2, 0, 3]), 0.5).tolist()
    [0.5, 1.0, 4.0]
    """
    neuron, sign = _leaky(alpha)
    return _gradient(neuron, incoming_gradient, _negative_at_0(sign * source), backend)


@function("sigmoidWithTensor:name:", "11.0", HEADER, "tensor")
def sigmoid(tensor: Tensor, *, backend: BackendLike = None) -> Array:
    """Compute the logistic function of each element.

    Examples
    --------
    >>> sigmoid(np.float32([0, 200])).tolist()
    [0.5, 1.0]
    """
    return _value(SIGMOID, tensor, backend)


@function("sigmoidGradientWithIncomingGradient:sourceTensor:name:", "11.0", HEADER, "incoming_gradient", "source")
def sigmoid_gradient(incoming_gradient: Tensor, source: Tensor, *, backend: BackendLike = None) -> Array:
    """Compute the gradient of :func:`sigmoid`.

    Parameters
    ----------
    incoming_gradient, source : array_like
        Gradient of the result, and the tensor of the forward pass.

    Examples
    --------
    >>> sigmoid_gradient(np.float32([1, 2]), np.float32([0, 0])).tolist()
    [0.25, 0.5]
    """
    return _gradient(SIGMOID, incoming_gradient, source, backend)


@function("softMaxWithTensor:axis:name:", "11.0", HEADER, "tensor")
def softmax(tensor: Tensor, axis: int, *, backend: BackendLike = None) -> Array:
    """Compute softmax along an axis.

    Examples
    --------
    >>> softmax(np.float32([[0, 0], [0, 200]]), 1).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    axes = axes_of("axis", axis, tensor.ndim)
    not_empty(tensor=tensor)
    return from_last(SOFTMAX.forward(last(tensor, axes), backend=backend), axes, tensor.shape)


@function("softMaxGradientWithIncomingGradient:sourceTensor:axis:name:", "11.0", HEADER, "incoming_gradient", "source")
def softmax_gradient(incoming_gradient: Tensor, source: Tensor, axis: int, *, backend: BackendLike = None) -> Array:
    """Compute the gradient of :func:`softmax` from its source, not from its result.

    Parameters
    ----------
    incoming_gradient, source : array_like
        Gradient of the result, and the tensor of the forward pass.
    axis : int
        The axis of the forward pass.

    Examples
    --------
    >>> softmax_gradient(np.float32([[1, 0]]), np.float32([[5, 5]]), 1).tolist()
    [[0.25, -0.25]]
    """
    same_shape(incoming_gradient=incoming_gradient, source=source)
    axes = axes_of("axis", axis, source.ndim)
    not_empty(source=source)
    y = SOFTMAX.forward(last(source, axes), backend=backend)
    return from_last(SOFTMAX.gradient(last(incoming_gradient, axes), y, backend=backend), axes, source.shape)
