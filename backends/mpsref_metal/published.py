"""The backends ``llama.cpp:metal`` and ``mlx:metal``: operations of mpsref by published Metal kernels on the CPU.

The tables have the results only: neither collection has kernels of gradients for these operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

import mpsref
from mpsref import Backend, InstanceNormalization, Neuron, UnsupportedError, UpsamplingNearest, frameworks
from mpsref.frameworks.adapter import RULES, Framework, Function, Table, Tensor
from mpsref.frameworks.words import CallArguments
from mpsref.registry import Problem

try:
    from published.collection import Array, Collection, blank, find, missing
    from published.ggml import Ggml
    from published.mlx import Mlx
except ModuleNotFoundError as error:
    raise ImportError(f"{error}: the published kernels are in a clone of mpsref, and not in its wheel") from None


class Published(Framework):
    """A collection as a framework without differentiation; its tensors are arrays."""

    def __init__(self, kind: type[Collection], axes: str) -> None:
        """Take the collection and the order of the axes of its images."""
        self.kind, self.title, self.axes = kind, kind.name, axes  # type: ignore[misc]

    @property
    def kernels(self) -> Any:
        """The collection, found when it is first needed."""
        kind: Any = self.kind
        return _opened(kind)

    def unavailable(self) -> str | None:
        """Return ``None``, or why its kernels do not run here."""
        return missing(self.kind)

    def described(self) -> str:
        """Return where they are from."""
        return f"clang on the CPU, Metal kernels of {self.title} in {find(self.kind)}"

    def tensor(self, array: Array) -> Tensor:
        """Return a contiguous array, an image in the order of the collection."""
        if array.ndim == 4 and self.axes == "NCHW":
            array = array.transpose(0, 3, 1, 2)
        return np.ascontiguousarray(array)

    def array(self, tensor: Tensor) -> Array:
        """Return an array, an image in the order NHWC."""
        found: Array = tensor.transpose(0, 2, 3, 1) if tensor.ndim == 4 and self.axes == "NCHW" else tensor
        return found

    def differentiate(self, function: Function, tensors: list[Tensor], g: Tensor, count: int) -> Any:
        """Refuse: there are no kernels of gradients."""
        raise UnsupportedError(f"{self.title} has no Metal kernel of this gradient")


@cache
def _opened(kind: Any) -> Any:
    return kind(find(kind))


def forward(table: Table) -> Table:
    """Return the results of a table, without gradients."""
    return {key: implementation for key, implementation in table.items() if key[1] == "forward"}


def _integers(problem: Any) -> tuple[int, int]:
    factors = tuple(map(float, problem.spec.factors))
    if any(factor != int(factor) for factor in factors):
        raise UnsupportedError(f"factors={factors}: results of other sizes than multiples are not compared")
    return int(factors[0]), int(factors[1])


# --- llama.cpp --------------------------------------------------------------------------------------------------------

ggml = Published(Ggml, "NCHW")


def pooling(problem: Problem) -> CallArguments:
    """Return the arguments of ggml's pooling, which divides by whole windows and has no dilation."""
    words = frameworks.pytorch(problem)
    given = dict(words.keywords)
    if given.pop("dilation", (1, 1)) != (1, 1) or given.pop("ceil_mode"):
        raise UnsupportedError("pooling of llama.cpp has neither dilations nor ceil_mode")
    if not given.pop("count_include_pad", True) or given.pop("divisor_override", None):
        raise UnsupportedError("average pooling of llama.cpp divides by the whole kernel only")
    return words._replace(keywords=given)


def _pool(maximum: bool) -> Function:
    def pool(x: Tensor, kernel_size: Any, stride: Any, padding: Any) -> Tensor:
        kernel, strides, pads = map(_pair, (kernel_size, stride, padding))
        axes = zip(x.shape[2:], kernel, strides, pads, strict=True)
        size = [(n + 2 * p - k) // s + 1 for n, k, s, p in axes]
        return ggml.kernels.pool_2d(x, kernel, strides, pads, size, maximum=maximum)

    return pool


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def conv2d(
    x: Tensor, weights: Tensor, bias: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """Return a convolution, and a bias of each channel added by a kernel of its own."""
    if groups != 1:
        raise UnsupportedError("convolution of llama.cpp has no groups")
    y = ggml.kernels.conv_2d(weights, x, _pair(stride), _pair(padding), _pair(dilation))
    return ggml.kernels.binary(0, y, bias.reshape(1, -1, 1, 1))


def _rows(x: Tensor) -> Tensor:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def softmax(x: Tensor) -> Tensor:
    """Return softmax over channels."""
    return ggml.kernels.soft_max(_rows(x)).transpose(0, 3, 1, 2)


def normalization(problem: Any) -> Function:
    """Return a function that normalizes one image at a time: the kernel ignores others."""
    channels = problem.source_shape[3]
    groups = channels if isinstance(problem.spec, InstanceNormalization) else problem.spec.groups

    def normalize(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        images = [ggml.kernels.group_norm(x[i : i + 1], groups, problem.spec.epsilon) for i in range(len(x))]
        scaled = ggml.kernels.binary(2, np.concatenate(images), gamma.reshape(1, -1, 1, 1))
        return ggml.kernels.binary(0, scaled, beta.reshape(1, -1, 1, 1))

    return normalize


def upsampling(problem: Any) -> Function:
    """Return nearest upsampling by whole factors, or bilinear with aligned corners."""
    if isinstance(problem.spec, UpsamplingNearest):
        y, x = _integers(problem)
        return lambda image: ggml.kernels.upscale(image, (image.shape[2] * y, image.shape[3] * x), "nearest")
    if not problem.spec.align_corners:
        raise UnsupportedError("without aligned corners llama.cpp shifts the positions by half a pixel; MPS does not")
    y, x = _integers(problem)
    return lambda image: ggml.kernels.upscale(
        image, (image.shape[2] * y, image.shape[3] * x), "bilinear", align_corners=True
    )


def _unary(name: str, **parameters: float) -> Function:
    return lambda x: ggml.kernels.unary(name, np.ascontiguousarray(x), **parameters)


def _chain(*functions: Function) -> Function:
    def run(x: Tensor) -> Tensor:
        for function in functions:
            x = function(x)
        return x

    return run


def _leaky(n: Neuron) -> Function:
    return _unary("RELU") if n.a == 0 else _unary("LEAKY_RELU", slope=n.a)


def _linear(scale: float, bias: float = 0.0) -> Function:
    return _unary("SCALE", scale=scale, bias=bias)


GGML_NEURONS: Mapping[str, Callable[[Neuron], Function]] = {
    "relu": _leaky,
    "linear": lambda n: _linear(n.a, n.b),
    "sigmoid": lambda n: _unary("SIGMOID"),
    "hardsigmoid": lambda n: _chain(_linear(n.a, n.b), _unary("CLAMP", min=0.0, max=1.0)),
    "tanh": lambda n: _chain(_linear(n.b), _unary("TANH"), _linear(n.a)),
    "absolute": lambda n: _unary("ABS"),
    "relun": lambda n: _chain(_leaky(n), _unary("CLAMP", min=-np.inf, max=n.b)),
    "exponential": lambda n: _chain(_linear(n.a * n.log_base, n.b * n.log_base), _unary("EXP")),
    "logarithm": lambda n: _chain(_linear(n.a, n.b), _unary("LOG"), _linear(1 / n.log_base)),
}

neuron = ggml.of_type(GGML_NEURONS)

GGML: Table = forward(
    {
        **ggml.pooling(mpsref.PoolingMax, pooling, _pool(True)),
        **ggml.pooling(mpsref.PoolingAverage, pooling, _pool(False)),
        **ggml.convolution(frameworks.pytorch, conv2d, neuron, "OIHW"),
        **ggml.group_normalization(InstanceNormalization, normalization),
        **ggml.group_normalization(mpsref.GroupNormalization, normalization),
        **ggml.layer(mpsref.SoftMax, lambda problem: softmax),
        **ggml.neurons(neuron),
        **ggml.layer(UpsamplingNearest, upsampling),
        **ggml.layer(mpsref.UpsamplingBilinear, upsampling),
    }
)

llama_cpp = Backend(
    "llama.cpp:metal",
    GGML,
    unavailable=ggml.unavailable,
    device=ggml.described,
    named_only=True,
    fast_math=True,
    rules=(*RULES, "rounded positions"),
    dtypes=("float32",),
    isolated=True,
)

# --- MLX --------------------------------------------------------------------------------------------------------------

mlx = Published(Mlx, "NHWC")


def _mlx_unary(name: str) -> Function:
    return lambda x: mlx.kernels.unary(name, np.ascontiguousarray(x), blank(x.shape, x.dtype))


def _mlx_binary(name: str, value: float) -> Function:
    return lambda x: mlx.kernels.binary(name, x, np.full(1, value, x.dtype), blank(x.shape, x.dtype))


def _mlx_linear(scale: float, bias: float = 0.0) -> Function:
    return _chain(_mlx_binary("Multiply", scale), _mlx_binary("Add", bias))


def _mlx_leaky(n: Neuron) -> Function:
    if n.a > 1:
        raise UnsupportedError(f"a is {n.a}; the maximum of x and a * x is another function above 1")
    scaled = _mlx_linear(n.a)
    return lambda x: mlx.kernels.binary("Maximum", x, scaled(x), blank(x.shape, x.dtype))


MLX_NEURONS: Mapping[str, Callable[[Neuron], Function]] = {
    "relu": _mlx_leaky,
    "linear": lambda n: _mlx_linear(n.a, n.b),
    "sigmoid": lambda n: _mlx_unary("Sigmoid"),
    "hardsigmoid": lambda n: _chain(_mlx_linear(n.a, n.b), _mlx_binary("Maximum", 0), _mlx_binary("Minimum", 1)),
    "tanh": lambda n: _chain(_mlx_linear(n.b), _mlx_unary("Tanh"), _mlx_linear(n.a)),
    "absolute": lambda n: _mlx_unary("Abs"),
    "relun": lambda n: _chain(_mlx_leaky(n), _mlx_binary("Minimum", n.b)),
    "exponential": lambda n: _chain(_mlx_linear(n.a * n.log_base, n.b * n.log_base), _mlx_unary("Exp")),
    "logarithm": lambda n: _chain(_mlx_linear(n.a, n.b), _mlx_unary("Log"), _mlx_linear(1 / n.log_base)),
    "softplus": lambda n: _chain(_mlx_linear(n.b), _mlx_binary("LogAddExp", 0), _mlx_linear(n.a)),
}


def _matrix(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def mlx_softmax(x: Tensor) -> Tensor:
    """Return softmax over the last axis."""
    return mlx.kernels.softmax(_matrix(x)).reshape(x.shape)


def mlx_log_softmax(x: Tensor) -> Tensor:
    """Return x minus the logarithm of the sum of its exponentials."""
    rows = _matrix(x)
    sums = mlx.kernels.logsumexp(rows)[:, None]
    return mlx.kernels.binary("Subtract", rows, sums, blank(rows.shape)).reshape(x.shape)


MLX: Table = forward(
    {
        **mlx.softmax(mlx_softmax, mlx_log_softmax),
        **mlx.neurons(mlx.of_type(MLX_NEURONS)),
    }
)

mlx_metal = Backend(
    "mlx:metal",
    MLX,
    unavailable=mlx.unavailable,
    device=mlx.described,
    named_only=True,
    rules=(*RULES, "small probabilities are 0"),
    dtypes=("float32",),
    isolated=True,
)
