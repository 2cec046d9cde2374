"""MLX as a backend: the functions that its users call, and their gradients by ``mlx.core.vjp``.

A table of functions of MLX on images (N, H, W, C); :class:`mpsref.frameworks.Framework` makes implementations of
mpsref of them. Images lie in memory as the arrays do, also transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mpsref
from mpsref import InstanceNormalization, Loss, Neuron, UnsupportedError, UpsamplingNearest, frameworks
from mpsref.frameworks.adapter import RULES, Function, Table, Tensor
from mpsref.frameworks.words import CallArguments
from mpsref.registry import Problem
from mpsref_mlx.run import Mlx

__all__ = ["backend"]

mlx = Mlx()


# --- pooling ----------------------------------------------------------------------------------------------------------


def pooling(problem: Problem) -> CallArguments:
    """Return the arguments of ``MaxPool2d`` and ``AvgPool2d``, which have neither dilation nor ceil_mode."""
    words = frameworks.pytorch(problem)
    given = dict(words.keywords)
    if given.pop("dilation", (1, 1)) != (1, 1):
        raise UnsupportedError(f"the dilation is {words.keywords['dilation']}; pooling of MLX has none")
    if given.pop("ceil_mode") or not given.pop("count_include_pad", True) or given.pop("divisor_override", None):
        raise UnsupportedError("pooling of MLX has neither ceil_mode nor other divisors than the whole kernel")
    return words._replace(keywords=given)


def max_pool(x: Tensor, **words: Any) -> Tensor:
    return mlx.nn.MaxPool2d(**words)(x)


def avg_pool(x: Tensor, **words: Any) -> Tensor:
    return mlx.nn.AvgPool2d(**words)(x)


# --- convolution ------------------------------------------------------------------------------------------------------


def conv2d(x: Tensor, weights: Tensor, bias: Tensor, **words: Any) -> Tensor:
    return mlx.core.conv2d(x, weights, **words) + bias


def conv_transpose2d(x: Tensor, weights: Tensor, **words: Any) -> Tensor:
    return mlx.core.conv_transpose2d(x, weights, **words)


def linear(x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    return mlx.core.addmm(bias, x, weights.T)


# --- normalization ----------------------------------------------------------------------------------------------------


def normalization(problem: Any) -> Function:
    spec, channels = problem.spec, problem.source_shape[3]
    if spec.epsilon == 0:
        raise UnsupportedError("epsilon is 0; normalization of MLX takes positive ones")
    if isinstance(spec, InstanceNormalization):
        layer = mlx.nn.InstanceNorm(channels, spec.epsilon, affine=True)
    else:
        layer = mlx.nn.GroupNorm(spec.groups, channels, spec.epsilon, pytorch_compatible=True)

    def normalize(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        return layer.update({"weight": gamma, "bias": beta})(x)

    return normalize


def batch_normalization(problem: Any) -> Function:
    if problem.spec.epsilon == 0:
        raise UnsupportedError("epsilon is 0; normalization of MLX takes positive ones")
    layer = mlx.nn.BatchNorm(problem.source_shape[3], problem.spec.epsilon).eval()

    def normalize(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        given = {"weight": gamma, "bias": beta, "running_mean": mean, "running_var": variance}
        return layer.update(given)(x)

    return normalize


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean((0, 1, 2)), x.var((0, 1, 2))


# --- elements ---------------------------------------------------------------------------------------------------------


def leaky_relu(n: Neuron) -> Function:
    if n.a > 1:
        raise UnsupportedError(f"a is {n.a}; leaky_relu of MLX is the maximum of x and a * x, another function above 1")
    return lambda x: mlx.nn.leaky_relu(x, n.a)


def relun(n: Neuron) -> Function:
    function = leaky_relu(n)
    return lambda x: mlx.core.minimum(function(x), n.b)


NEURONS: Mapping[str, Callable[[Neuron], Function]] = {
    "none": lambda n: lambda x: x * 1,
    "relu": lambda n: mlx.nn.relu if n.a == 0 else leaky_relu(n),
    "linear": lambda n: lambda x: n.a * x + n.b,
    "sigmoid": lambda n: mlx.core.sigmoid,
    "hardsigmoid": lambda n: lambda x: mlx.core.clip(n.a * x + n.b, 0, 1),
    "tanh": lambda n: lambda x: n.a * mlx.core.tanh(n.b * x),
    "absolute": lambda n: mlx.core.abs,
    "softplus": lambda n: lambda x: n.a * mlx.nn.softplus(n.b * x),
    "softsign": lambda n: mlx.nn.softsign,
    "elu": lambda n: lambda x: mlx.nn.elu(x, n.a),
    "relun": relun,
    "power": lambda n: lambda x: mlx.core.power(n.a * x + n.b, n.c),
    "exponential": lambda n: lambda x: mlx.core.exp((n.a * x + n.b) * n.log_base),
    "logarithm": lambda n: lambda x: mlx.core.log(n.a * x + n.b) / n.log_base,
    "gelu": lambda n: mlx.nn.gelu,
    "prelu": lambda n: mlx.nn.prelu,
}


neuron = mlx.of_type(NEURONS)


LOSSES: Mapping[str, Callable[[Loss], Function]] = {
    "meanabsoluteerror": lambda loss: lambda y, t: mlx.nn.losses.l1_loss(y, t, "none"),
    "meansquarederror": lambda loss: lambda y, t: mlx.nn.losses.mse_loss(y, t, "none"),
    "huber": lambda loss: lambda y, t: mlx.nn.losses.huber_loss(y, t, loss.delta),
    "hinge": lambda loss: lambda y, t: mlx.nn.losses.hinge_loss(y, 2 * t - 1),
    "sigmoidcrossentropy": lambda loss: lambda y, t: mlx.nn.losses.binary_cross_entropy(y, t, reduction="none"),
    "softmaxcrossentropy": lambda loss: lambda y, t: mlx.nn.losses.cross_entropy(y, t)[..., None],
}


loss = mlx.of_type(LOSSES)


# --- movement ---------------------------------------------------------------------------------------------------------


def upsampling(problem: Any) -> Function:
    scale = tuple(map(float, problem.spec.factors))
    if isinstance(problem.spec, UpsamplingNearest):
        return lambda x: mlx.nn.Upsample(scale, "nearest")(x)
    if not problem.spec.align_corners:
        raise UnsupportedError("without aligned corners MLX shifts the positions by half a pixel; MPS does not")
    return lambda x: mlx.nn.Upsample(scale, "linear", align_corners=True)(x)


def pad(x: Tensor, pairs: Any, mode: str = "constant", fill: float = 0.0) -> Tensor:
    return mlx.core.pad(x, pairs, mode, fill)


def reduce(x: Tensor, operation: str, axes: Any) -> Tensor:
    return getattr(mlx.core, operation.replace("argument", "arg"))(x, axes, keepdims=True)


IMPLEMENTATIONS: Table = {
    **mlx.pooling(mpsref.PoolingMax, pooling, max_pool),
    **mlx.pooling(mpsref.PoolingAverage, pooling, avg_pool),
    **mlx.convolution(frameworks.pytorch, conv2d, neuron),
    **mlx.transposed_convolution(frameworks.pytorch, conv_transpose2d, neuron),
    **mlx.fully_connected(linear, neuron),
    **mlx.group_normalization(InstanceNormalization, normalization),
    **mlx.group_normalization(mpsref.GroupNormalization, normalization),
    **mlx.batch_normalization(moments, batch_normalization, neuron),
    **mlx.neurons(neuron),
    **mlx.softmax(lambda x: mlx.core.softmax(x, -1), lambda x: mlx.nn.log_softmax(x, -1)),
    **mlx.losses(loss, of_probabilities=True),
    **mlx.layer((UpsamplingNearest, mpsref.UpsamplingBilinear), upsampling),
    **mlx.padding({"zero": "constant", "constant": "constant", "clamp": "edge"}, pad),
    **mlx.reductions(reduce),
    **mlx.slices(pad),
    **mlx.reshape(lambda x, shape: x.reshape(shape), lambda x, axes: x.transpose(axes)),
    **mlx.concatenation(lambda images, axis: mlx.core.concatenate(images, axis), pad),
    **mlx.arithmetic(lambda x, low, high: mlx.core.clip(x, low, high)),
    **mlx.compare(lambda x: mlx.core.abs(x), lambda mask: mask.astype(mlx.core.float32)),
    **mlx.dropout(),
}

backend = mlx.backend(
    "mlx",
    IMPLEMENTATIONS,
    layouts=("nhwc", "nchw", "cnhw"),
    rules=(
        *("ties shared", "softmax recomputed", "small probabilities are 0", "cross entropy relative to 1"),
        "rounded positions",
        "Huber's slope relative to delta",
        *RULES,
    ),
)
