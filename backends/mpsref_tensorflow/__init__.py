"""TensorFlow as a backend: the functions that its users call, and their gradients by ``tf.GradientTape``.

A table of functions of TensorFlow on images (N, H, W, C); :class:`mpsref.frameworks.Framework` makes implementations of
mpsref of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mpsref
from mpsref import InstanceNormalization, Loss, Neuron, UnsupportedError, UpsamplingNearest, frameworks
from mpsref.frameworks.adapter import RULES, Function, Table, Tensor, writes_behind_a_column
from mpsref_tensorflow.run import TensorFlow

__all__ = ["backend"]

tensorflow = TensorFlow()


# --- pooling and convolution ------------------------------------------------------------------------------------------


def max_pool(x: Tensor, **words: Any) -> Tensor:
    return tensorflow.tf.nn.max_pool2d(x, **words)


def avg_pool(x: Tensor, **words: Any) -> Tensor:
    return tensorflow.tf.nn.avg_pool2d(x, **words)


def conv2d(x: Tensor, weights: Tensor, bias: Tensor, **words: Any) -> Tensor:
    return tensorflow.tf.nn.bias_add(tensorflow.tf.nn.conv2d(x, weights, **words), bias)


def conv_transpose2d(x: Tensor, weights: Tensor, **words: Any) -> Tensor:
    return tensorflow.tf.nn.conv2d_transpose(x, weights, **words)


def linear(x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    return tensorflow.tf.linalg.matmul(x, weights, transpose_b=True) + bias


# --- normalization ----------------------------------------------------------------------------------------------------


def normalization(problem: Any) -> Function:
    spec, channels = problem.spec, problem.source_shape[3]
    groups = channels if isinstance(spec, InstanceNormalization) else spec.groups

    def normalize(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        layer = tensorflow.layers.GroupNormalization(groups, epsilon=spec.epsilon)
        layer.build(x.shape)
        return layer.stateless_call([gamma, beta], [], x)[0]

    return normalize


def batch_normalization(problem: Any) -> Function:
    tf, epsilon = tensorflow.tf, problem.spec.epsilon
    return lambda x, gamma, beta, mean, variance: tf.nn.batch_normalization(x, mean, variance, beta, gamma, epsilon)


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    mean, variance = tensorflow.tf.nn.moments(x, (0, 1, 2))
    return mean, variance


def local_response(problem: Any) -> Function:
    spec = problem.spec
    if spec.kernel_size % 2 == 0:
        raise UnsupportedError(
            f"kernel_size is {spec.kernel_size}; windows of TensorFlow have an odd number of channels"
        )
    alpha, radius = spec.alpha / spec.kernel_size, spec.kernel_size // 2
    return lambda x: tensorflow.tf.nn.local_response_normalization(x, radius, spec.delta, alpha, spec.beta)


# --- elements ---------------------------------------------------------------------------------------------------------


def leaky_relu(n: Neuron) -> Function:
    if n.a > 1:
        raise UnsupportedError(f"a is {n.a}; leaky_relu of TensorFlow is the maximum of x and a * x")
    return lambda x: tensorflow.tf.nn.leaky_relu(x, n.a)


def relun(n: Neuron) -> Function:
    function = leaky_relu(n)
    return lambda x: tensorflow.tf.minimum(function(x), n.b)


NEURONS: Mapping[str, Callable[[Neuron], Function]] = {
    "none": lambda n: lambda x: x * 1,
    "relu": lambda n: tensorflow.tf.nn.relu if n.a == 0 else leaky_relu(n),
    "linear": lambda n: lambda x: n.a * x + n.b,
    "sigmoid": lambda n: tensorflow.tf.sigmoid,
    "hardsigmoid": lambda n: lambda x: tensorflow.tf.clip_by_value(n.a * x + n.b, 0, 1),
    "tanh": lambda n: lambda x: n.a * tensorflow.tf.tanh(n.b * x),
    "absolute": lambda n: tensorflow.tf.abs,
    "softplus": lambda n: lambda x: n.a * tensorflow.tf.nn.softplus(n.b * x),
    "softsign": lambda n: tensorflow.tf.nn.softsign,
    "elu": lambda n: lambda x: tensorflow.tf.keras.activations.elu(x, n.a),
    "relun": relun,
    "power": lambda n: lambda x: tensorflow.tf.pow(n.a * x + n.b, n.c),
    "exponential": lambda n: lambda x: tensorflow.tf.exp((n.a * x + n.b) * n.log_base),
    "logarithm": lambda n: lambda x: tensorflow.tf.math.log(n.a * x + n.b) / n.log_base,
    "gelu": lambda n: tensorflow.tf.nn.gelu,
}


neuron = tensorflow.of_type(NEURONS)


LOSSES: Mapping[str, Callable[[Loss], Function]] = {
    "sigmoidcrossentropy": lambda loss: lambda y, t: tensorflow.tf.nn.sigmoid_cross_entropy_with_logits(t, y),
    "softmaxcrossentropy": lambda loss: (
        lambda y, t: tensorflow.tf.nn.softmax_cross_entropy_with_logits(t, y)[..., None]
    ),
}


loss = tensorflow.of_type(LOSSES)


# --- movement ---------------------------------------------------------------------------------------------------------


def upsampling(problem: Any) -> Function:
    size, tf = problem.large_shape[1:3], tensorflow.tf
    if isinstance(problem.spec, UpsamplingNearest):
        return lambda x: tf.image.resize(x, size, "nearest")
    if not problem.spec.align_corners:
        raise UnsupportedError("tf.image.resize shifts the positions by half a pixel; MPS does not")
    return lambda x: tf.compat.v1.image.resize_bilinear(x, size, align_corners=True)


def pad(x: Tensor, pairs: Any, mode: str = "CONSTANT", fill: float = 0.0) -> Tensor:
    return tensorflow.tf.pad(x, pairs, mode, fill)


def reduce(x: Tensor, operation: str, axes: Any) -> Tensor:
    if operation.startswith("argument"):
        raise UnsupportedError("argmin and argmax of TensorFlow do not promise which of equal extrema they return")
    return getattr(tensorflow.tf, f"reduce_{operation}")(x, axes, keepdims=True)


IMPLEMENTATIONS: Table = {
    **tensorflow.pooling(mpsref.PoolingMax, frameworks.tensorflow, max_pool),
    **tensorflow.pooling(mpsref.PoolingAverage, frameworks.tensorflow, avg_pool),
    **tensorflow.convolution(frameworks.tensorflow, conv2d, neuron, "HWIO"),
    **tensorflow.transposed_convolution(frameworks.tensorflow, conv_transpose2d, neuron, "HWIO"),
    **tensorflow.fully_connected(linear, neuron),
    **tensorflow.group_normalization(InstanceNormalization, normalization),
    **tensorflow.group_normalization(mpsref.GroupNormalization, normalization),
    **tensorflow.batch_normalization(moments, batch_normalization, neuron),
    **tensorflow.layer(mpsref.CrossChannelNormalization, local_response),
    **tensorflow.neurons(neuron),
    **tensorflow.softmax(lambda x: tensorflow.tf.nn.softmax(x), lambda x: tensorflow.tf.nn.log_softmax(x)),
    **tensorflow.losses(loss),
    **tensorflow.layer((UpsamplingNearest, mpsref.UpsamplingBilinear), upsampling),
    **tensorflow.padding({"zero": "CONSTANT", "constant": "CONSTANT", "mirror": "REFLECT"}, pad),
    **tensorflow.reductions(reduce),
    **tensorflow.slices(pad),
    **tensorflow.reshape(
        lambda x, shape: tensorflow.tf.reshape(x, shape), lambda x, axes: tensorflow.tf.transpose(x, axes)
    ),
    **tensorflow.concatenation(lambda images, axis: tensorflow.tf.concat(images, axis), pad),
    **tensorflow.arithmetic(lambda x, low, high: tensorflow.tf.clip_by_value(x, low, high)),
    **tensorflow.compare(lambda x: tensorflow.tf.abs(x), lambda mask: tensorflow.tf.cast(mask, "float32")),
    **tensorflow.dropout(),
}

backend = tensorflow.backend(
    "tensorflow",
    IMPLEMENTATIONS,
    rules=("softmax recomputed", "small probabilities are 0", "folded sums", "rounded positions", *RULES),
    refuses=writes_behind_a_column,
)
