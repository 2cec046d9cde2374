"""Automatic differentiation: for each function the gradient for each of its tensors, as tensors of the same graph.

A rule is called with the graph, the gradient of the first result, and the arguments of the call by their names, as the
function declares them; ``result`` is its first result. All follow from the formulas of the functions [math].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

Rule: TypeAlias = Callable[[Any, Any, Any], Any]
"""``rule(graph, g, of)`` returns a tensor."""


def _times(graph: Any, tensor: Any, factor: float) -> Any:
    return graph.multiplication(tensor, np.array(factor, tensor.dtype))


def _summed(graph: Any, g: Any, like: Any) -> Any:
    """Return the gradient of a tensor that was broadcast: summed over the axes that were repeated."""
    new = len(g.shape) - len(like.shape)
    axes = [axis for axis, length in enumerate(g.shape) if axis < new or like.shape[axis - new] != length]
    return graph.reshape(graph.reduction_sum(g, axes), like.shape) if axes else g


def _deviation(graph: Any, of: Any) -> Any:
    """Return ``2 (tensor - mean) / N`` of a variance."""
    mean = graph.mean_of_tensor(of.tensor, of.axes) if of.mean is None else of.mean
    return _times(
        graph, graph.subtraction(of.tensor, mean), 2 * math.prod(of.result.shape) / math.prod(of.tensor.shape)
    )


def _normalized(graph: Any, g: Any, of: Any) -> Any:
    """Return ``g gamma / sqrt(variance + epsilon)``: the gradient of ``tensor - mean`` in a normalization."""
    root = graph.square_root(graph.addition(of.variance, np.array(of.epsilon, g.dtype)))
    return graph.division(g if of.gamma is None else graph.multiplication(g, of.gamma), root)


def _of_variance(graph: Any, g: Any, of: Any) -> Any:
    """Return ``-1/2 sum g gamma (tensor - mean) / (variance + epsilon)**(3/2)``."""
    product = graph.multiplication(_normalized(graph, g, of), graph.subtraction(of.tensor, of.mean))
    inner = graph.addition(of.variance, np.array(of.epsilon, g.dtype))
    return _times(graph, graph.division(_summed(graph, product, of.variance), inner), -0.5)


def _of_gamma(graph: Any, g: Any, of: Any) -> Any:
    xhat = graph.normalization(of.tensor, of.mean, of.variance, epsilon=of.epsilon)
    return _summed(graph, graph.multiplication(g, xhat), of.gamma)


def _of_convolution(name: str) -> Mapping[str, Rule]:
    return {
        "source": lambda graph, g, of: getattr(graph, f"{name}_data_gradient")(
            g, of.weights, of.source.shape, of.descriptor
        ),
        "weights": lambda graph, g, of: getattr(graph, f"{name}_weights_gradient")(
            g, of.source, of.weights.shape, of.descriptor
        ),
    }


def _flags(of: Any) -> dict[str, Any]:
    return {name: getattr(of, name) for name in ("center_result", "align_corners", "layout", "scale_offset")}


RULES: Mapping[str, Mapping[str, Rule]] = {
    "convolution_2d": _of_convolution("convolution_2d"),
    "convolution_transpose_2d": _of_convolution("convolution_transpose_2d"),
    "depthwise_convolution_2d": _of_convolution("depthwise_convolution_2d"),
    "max_pooling_2d": {"source": lambda graph, g, of: graph.max_pooling_2d_gradient(g, of.source, of.descriptor)},
    "avg_pooling_2d": {"source": lambda graph, g, of: graph.avg_pooling_2d_gradient(g, of.source, of.descriptor)},
    "max_pooling_2d_return_indices": {
        "source": lambda graph, g, of: graph.max_pooling_2d_gradient(g, of.source, of.descriptor)
    },
    "mean_of_tensor": {
        "tensor": lambda graph, g, of: _times(
            graph, graph.broadcast(g, of.tensor.shape), math.prod(g.shape) / math.prod(of.tensor.shape)
        )
    },
    "variance_of_tensor": {
        "tensor": lambda graph, g, of: graph.multiplication(_deviation(graph, of), g),
        "mean": lambda graph, g, of: _times(
            graph, _summed(graph, graph.multiplication(_deviation(graph, of), g), of.mean), -1
        ),
    },
    "normalization": {
        "tensor": lambda graph, g, of: _normalized(graph, g, of),
        "mean": lambda graph, g, of: _times(graph, _summed(graph, _normalized(graph, g, of), of.mean), -1),
        "variance": _of_variance,
        "gamma": _of_gamma,
        "beta": lambda graph, g, of: _summed(graph, g, of.beta),
    },
    "resize": {
        "images": lambda graph, g, of: graph.resize_gradient(
            g, of.images, of.mode, of.center_result, of.align_corners, of.layout
        )
    },
    "resize_nearest": {
        "images": lambda graph, g, of: graph.resize_nearest_gradient(
            g, of.images, of.nearest_rounding_mode, **_flags(of)
        )
    },
    "resize_bilinear": {"images": lambda graph, g, of: graph.resize_bilinear_gradient(g, of.images, **_flags(of))},
    "relu": {"tensor": lambda graph, g, of: graph.relu_gradient(g, of.tensor)},
    "leaky_relu": {"tensor": lambda graph, g, of: graph.leaky_relu_gradient(g, of.tensor, of.alpha)},
    "sigmoid": {"tensor": lambda graph, g, of: graph.sigmoid_gradient(g, of.tensor)},
    "softmax": {"tensor": lambda graph, g, of: graph.softmax_gradient(g, of.tensor, of.axis)},
    "softmax_cross_entropy": {
        "source": lambda graph, g, of: graph.softmax_cross_entropy_gradient(
            g, of.source, of.labels, of.axis, of.reduction_type
        )
    },
    "addition": {
        "primary": lambda graph, g, of: _summed(graph, g, of.primary),
        "secondary": lambda graph, g, of: _summed(graph, g, of.secondary),
    },
    "subtraction": {
        "primary": lambda graph, g, of: _summed(graph, g, of.primary),
        "secondary": lambda graph, g, of: _times(graph, _summed(graph, g, of.secondary), -1),
    },
    "multiplication": {
        "primary": lambda graph, g, of: _summed(graph, graph.multiplication(g, of.secondary), of.primary),
        "secondary": lambda graph, g, of: _summed(graph, graph.multiplication(g, of.primary), of.secondary),
    },
    "division": {
        "primary": lambda graph, g, of: _summed(graph, graph.division(g, of.secondary), of.primary),
        "secondary": lambda graph, g, of: _times(
            graph,
            _summed(graph, graph.division(graph.multiplication(g, of.result), of.secondary), of.secondary),
            -1,
        ),
    },
    "square_root": {"tensor": lambda graph, g, of: _times(graph, graph.division(g, of.result), 0.5)},
    "reduction_sum": {"tensor": lambda graph, g, of: graph.broadcast(g, of.tensor.shape)},
    "matrix_multiplication": {
        "primary": lambda graph, g, of: graph.matrix_multiplication(g, graph.transpose(of.secondary, 0, 1)),
        "secondary": lambda graph, g, of: graph.matrix_multiplication(graph.transpose(of.primary, 0, 1), g),
    },
    "reshape": {"tensor": lambda graph, g, of: graph.reshape(g, of.tensor.shape)},
    "transpose": {"tensor": lambda graph, g, of: graph.transpose(g, of.dimension, of.with_dimension)},
    "broadcast": {"tensor": lambda graph, g, of: _summed(graph, g, of.tensor)},
}
"""The rules by function and tensor. What has none, Apple's automatic differentiation is not known to support."""
