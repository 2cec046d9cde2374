"""tinygrad as a backend: the functions that its users call, and their gradients by ``Tensor.backward``.

A table of functions of tinygrad on tensors (N, C, H, W); :class:`mpsref.frameworks.Framework` makes implementations of
mpsref of them. tinygrad compiles each shape for seconds, so a check has few distinct problems with many data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mpsref
from mpsref import InstanceNormalization, Loss, Neuron, UnsupportedError, UpsamplingNearest, frameworks
from mpsref.frameworks.adapter import RULES, Function, Table, Tensor
from mpsref.frameworks.words import CallArguments
from mpsref.registry import Problem
from mpsref_tinygrad.run import Tinygrad

__all__ = ["backend"]

tinygrad = Tinygrad()


# --- pooling and convolution ------------------------------------------------------------------------------------------


def average(problem: Problem) -> CallArguments:
    """Return the arguments of ``avg_pool2d``, which has no divisor_override."""
    words = frameworks.pytorch(problem)
    given = dict(words.keywords)
    if given.pop("divisor_override") is not None:
        raise UnsupportedError("avg_pool2d of tinygrad has no divisor_override")
    return words._replace(keywords=given)


def conv2d(x: Tensor, weights: Tensor, bias: Tensor, **words: Any) -> Tensor:
    return x.conv2d(weights, bias, **words)


def conv_transpose2d(x: Tensor, weights: Tensor, **words: Any) -> Tensor:
    return x.conv_transpose2d(weights, **words)


# --- normalization ----------------------------------------------------------------------------------------------------


def normalization(problem: Any) -> Function:
    spec, channels = problem.spec, problem.source_shape[3]

    def normalize(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        if isinstance(spec, InstanceNormalization):
            layer = tinygrad.nn.InstanceNorm(channels, spec.epsilon)
        else:
            layer = tinygrad.nn.GroupNorm(spec.groups, channels, spec.epsilon)
        layer.weight, layer.bias = gamma, beta
        return layer(x)

    return normalize


def batch_normalization(problem: Any) -> Function:
    epsilon = problem.spec.epsilon
    return lambda x, gamma, beta, mean, variance: x.batchnorm(gamma, beta, mean, (variance + epsilon).rsqrt())


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)


# --- elements ---------------------------------------------------------------------------------------------------------


NEURONS: Mapping[str, Callable[[Neuron], Function]] = {
    "none": lambda n: lambda x: x * 1,
    "relu": lambda n: lambda x: x.relu() if n.a == 0 else x.leaky_relu(n.a),
    "linear": lambda n: lambda x: n.a * x + n.b,
    "sigmoid": lambda n: lambda x: x.sigmoid(),
    "hardsigmoid": lambda n: lambda x: x.hardsigmoid(n.a, n.b),
    "tanh": lambda n: lambda x: n.a * (n.b * x).tanh(),
    "absolute": lambda n: lambda x: x.abs(),
    "softplus": lambda n: lambda x: n.a * (n.b * x).softplus(),
    "softsign": lambda n: lambda x: x.softsign(),
    "elu": lambda n: lambda x: x.elu(n.a),
    "relun": lambda n: lambda x: x.leaky_relu(n.a).minimum(n.b),
    "power": lambda n: lambda x: (n.a * x + n.b).pow(n.c),
    "exponential": lambda n: lambda x: ((n.a * x + n.b) * n.log_base).exp(),
    "logarithm": lambda n: lambda x: (n.a * x + n.b).log() / n.log_base,
    "gelu": lambda n: lambda x: x.gelu(approximate="none"),
}


neuron = tinygrad.of_type(NEURONS)


LOSSES: Mapping[str, Callable[[Loss], Function]] = {
    "sigmoidcrossentropy": lambda loss: lambda y, t: y.binary_crossentropy_logits(t, reduction="none"),
    "softmaxcrossentropy": lambda loss: lambda y, t: y.cross_entropy(t, reduction="none").unsqueeze(1),
}


loss = tinygrad.of_type(LOSSES)


# --- movement ---------------------------------------------------------------------------------------------------------


def upsampling(problem: Any) -> Function:
    size = problem.large_shape[1:3]
    if isinstance(problem.spec, UpsamplingNearest):
        return lambda x: x.interpolate(size, "nearest")
    if not problem.spec.align_corners:
        raise UnsupportedError("without aligned corners tinygrad shifts the positions by half a pixel; MPS does not")
    return lambda x: x.interpolate(size, "linear", align_corners=True)


PAD_MODES = {"zero": "constant", "constant": "constant", "clamp": "replicate", "mirror": "reflect"}


def reduce(x: Tensor, operation: str, axes: Any) -> Tensor:
    return getattr(x, operation.replace("argument", "arg"))(axes, keepdim=True).float()


IMPLEMENTATIONS: Table = {
    **tinygrad.pooling(mpsref.PoolingMax, frameworks.pytorch, lambda x, **words: x.max_pool2d(**words)),
    **tinygrad.pooling(mpsref.PoolingAverage, average, lambda x, **words: x.avg_pool2d(**words)),
    **tinygrad.convolution(frameworks.pytorch, conv2d, neuron, "OIHW"),
    **tinygrad.transposed_convolution(frameworks.pytorch, conv_transpose2d, neuron, "OIHW"),
    **tinygrad.fully_connected(lambda x, weights, bias: x.linear(weights.transpose(), bias), neuron),
    **tinygrad.group_normalization(InstanceNormalization, normalization),
    **tinygrad.group_normalization(mpsref.GroupNormalization, normalization),
    **tinygrad.batch_normalization(moments, batch_normalization, neuron),
    **tinygrad.neurons(neuron),
    **tinygrad.softmax(lambda x: x.softmax(1), lambda x: x.log_softmax(1)),
    **tinygrad.losses(loss),
    **tinygrad.layer((UpsamplingNearest, mpsref.UpsamplingBilinear), upsampling),
    **tinygrad.padding(PAD_MODES, lambda x, pairs, mode, fill: x.pad(pairs, mode, fill)),
    **tinygrad.reductions(reduce),
    **tinygrad.slices(lambda x, pairs: x.pad(pairs)),
    **tinygrad.reshape(lambda x, shape: x.reshape(shape), lambda x, axes: x.permute(axes)),
    **tinygrad.concatenation(lambda images, axis: images[0].cat(*images[1:], dim=axis), lambda x, pairs: x.pad(pairs)),
    **tinygrad.arithmetic(lambda x, low, high: x.clip(low, high)),
    **tinygrad.compare(lambda x: x.abs(), lambda mask: mask.float()),
    **tinygrad.dropout(),
}

backend = tinygrad.backend(
    "tinygrad",
    IMPLEMENTATIONS,
    distinct_problems=1,
    rules=("ties shared", "softmax recomputed", *RULES),
)
