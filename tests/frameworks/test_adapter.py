"""The adapter of frameworks, on a framework of a few lines, and its refusals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import Backend, PoolingAverage, PoolingMax, Reduce, UnsupportedError, frameworks
from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case
from mpsref.conformance.runner import run_case
from mpsref.frameworks import Framework
from mpsref.frameworks.adapter import Function, Tensor
from mpsref.kernels import ConvolutionTranspose


class Channels(Framework):
    """Linear functions of NumPy on (N, C, H, W), differentiated one element after the other."""

    title = "Linear"
    package = "numpy"
    axes = "NCHW"
    refusals = ("cannot reshape",)

    def tensor(self, array: Array) -> Tensor:
        return array.transpose(0, 3, 1, 2).copy()

    def array(self, tensor: Tensor) -> Array:
        return np.asarray(tensor).transpose(0, 2, 3, 1)

    def differentiate(self, function: Function, tensors: list[Tensor], g: Tensor, count: int) -> Sequence[Tensor]:
        (x,) = tensors
        dx = np.zeros_like(x)
        for index in np.ndindex(*x.shape):
            one = np.zeros_like(x)
            one[index] = 1
            dx[index] = (function(one) * g).sum()
        return [dx]


LINEAR = Channels()


def mean(problem: Any) -> Function:
    return lambda x: x.mean((2, 3), keepdims=True, dtype=np.float32)


def backend(table: Any) -> Backend:
    return Backend("linear", table, dtypes=("float32",))


def test_a_layer_and_its_gradient() -> None:
    table = LINEAR.layer(Reduce, mean)
    x, g = np.arange(12, dtype=np.float32).reshape(1, 2, 3, 2), np.array([6, 12], np.float32).reshape(1, 1, 1, 2)
    spec = Reduce("mean", "spatial")
    assert spec.forward(x, backend=backend(table)).ravel().tolist() == [5, 6]
    assert spec.gradient(g, x.shape, backend=backend(table))[0, 0].tolist() == [[1, 2]] * 3


def plain_mean(x: Tensor, kernel_size: Any, stride: Any, padding: Any, **words: Any) -> Tensor:
    """Average pooling without padding; means of all taps."""
    assert padding == (0, 0)
    assert not words.pop("ceil_mode")
    (kh, kw), (sy, sx) = kernel_size, stride
    windows = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), (2, 3))[:, :, ::sy, ::sx]
    return windows.mean((4, 5), dtype=np.float32)


def no_padding(problem: Any) -> frameworks.CallArguments:
    words = frameworks.pytorch(problem)
    if words.keywords["padding"] != (0, 0) or words.keywords["ceil_mode"]:
        raise UnsupportedError("no padding")
    if not words.keywords["count_include_pad"] or words.keywords["divisor_override"]:
        raise UnsupportedError("no divisor")
    return words


@pytest.mark.parametrize(
    "case",
    [
        "forward:n2h3w4c2,k2x2,s2x1,o1x1,float32",
        "forward:n1h4w5c1,k3x3,clamp,zp1x1,float32",
        "forward:n1h4w5c1,k3x2,s2x2,o-1x3,out4x4,clamp,float32",
        "gradient:n1h3w4c2,k2x2,s2x1,o1x1,float32",
        "gradient:n1h4w3c1,k3x3,clamp,zp1x1,float32",
        "gradient:n1h4w3c1,k3x2,s2x2,o-1x3,clamp,g4x4,float32",
    ],
)
def test_any_geometry_is_computed_without_padding(case: str) -> None:
    """By means of all taps, or by sums where the framework has them."""
    seen: list[bool] = []

    def sums(x: Tensor, kernel_size: Any, **words: Any) -> Tensor:
        seen.append(True)
        return plain_mean(x, kernel_size, **words) * np.float32(math.prod(kernel_size))

    for given in (None, sums):
        table = LINEAR.pooling(PoolingAverage, no_padding, plain_mean, given)
        outcome = run_case(Case.parse(f"PoolingAverage.{case},seed=1"), backend(table))
        assert outcome.status == "passed", outcome.message
    assert bool(seen) != ("k2x2,s2x1" in case), "the framework has arguments for these windows"


def test_a_gradient_of_another_shape_is_an_error() -> None:
    class Wrong(Channels):
        def differentiate(self, function: Function, tensors: list[Tensor], g: Tensor, count: int) -> Sequence[Tensor]:
            return [tensors[0][:, :, :1, :1]]

    spec, g = Reduce("mean", "spatial"), np.ones((1, 1, 1, 2), np.float32)
    with pytest.raises(ValueError, match=r"Linear returns a gradient of shape \(1, 1, 1, 2\) for \(1, 2, 3, 2\)"):
        spec.gradient(g, (1, 2, 3, 2), backend=backend(Wrong().layer(Reduce, mean)))


def test_what_the_framework_refuses_is_unsupported_and_other_errors_are_not() -> None:
    x = np.ones((1, 2, 3, 2), np.float32)
    spec = Reduce("mean", "spatial")
    with pytest.raises(UnsupportedError, match="Linear: cannot reshape"):
        spec.forward(x, backend=backend(LINEAR.layer(Reduce, lambda problem: lambda x: x.reshape(7))))
    with pytest.raises(ZeroDivisionError):
        spec.forward(x, backend=backend(LINEAR.layer(Reduce, lambda problem: lambda x: x * (1 // 0))))


@pytest.mark.parametrize("method", ["gradient", "gradient_labels"])
def test_a_cross_entropy_of_pixels_has_no_value_for_each_channel(method: str) -> None:
    """Also where there is a source gradient, which has as many channels as the values of MPS."""
    table = LINEAR.losses(lambda loss: lambda y, t: -(t * y).sum(1, keepdims=True))
    g = y = t = np.full((1, 1, 1, 2), 0.5, np.float32)
    spec = mpsref.Loss("softmaxcrossentropy", reduction="none")
    with pytest.raises(UnsupportedError, match="the cross entropy of Linear has one value and weight for each pixel"):
        getattr(spec, method)(g, y, t, backend=backend(table))


def test_dropout_is_unsupported_but_for_its_gradient() -> None:
    def backward(problem: Any) -> Function:
        return lambda g, mask: np.where(mask, g * np.float32(problem.spec.scale), np.float32(0))

    dropout, g = mpsref.Dropout(0.5), np.arange(4, dtype=np.float32).reshape(1, 2, 2, 1)
    mask = np.array([0, 1, 1, 0], np.uint8).reshape(1, 2, 2, 1)
    for table in (LINEAR.dropout(), LINEAR.dropout(backward)):
        with pytest.raises(UnsupportedError, match="dropout of Linear draws its mask itself"):
            dropout.mask((1, 2, 2, 1), backend=backend(table))
    assert dropout.gradient(g, mask, backend=backend(LINEAR.dropout(backward))).ravel().tolist() == [0, 2, 4, 0]
    with pytest.raises(UnsupportedError, match="dropout of Linear draws its mask itself"):
        dropout.gradient(g, mask, backend=backend(LINEAR.dropout()))


def test_operations_of_one_call() -> None:
    table = LINEAR.calls(
        mpsref.SoftMax, gradient=lambda problem: lambda g, y: y * (g - (g * y).sum(1, keepdims=True, dtype=np.float32))
    )
    outcome = run_case(Case.parse("SoftMax.gradient:n2h3w2c4,float32,seed=1"), backend(table))
    assert outcome.status == "passed", outcome.message


def test_an_optimizer() -> None:
    def step(problem: Any, gradient: Tensor, value: Tensor, *moments: Tensor) -> list[Tensor]:
        spec = problem.spec
        m = [np.float32(spec.momentum_scale) * m + np.float32(spec.learning_rate) * gradient for m in moments]
        return [value - (m[0] if m else np.float32(spec.learning_rate) * gradient), *m]

    table = backend(LINEAR.optimizer(mpsref.StochasticGradientDescent, step))
    g, v = np.random.default_rng(1).standard_normal((2, 1, 2, 3, 2)).astype(np.float32)
    optimizer = mpsref.StochasticGradientDescent(0.5, momentum_scale=0.25)
    for moments in ((), (g - v,)):
        found, expected = (optimizer.step(g, v, *moments, backend=one) for one in (table, "reference"))
        assert (found[1] is None) == (not moments)
        for one, other in zip(found[: 1 + len(moments)], expected, strict=False):
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-6)


@pytest.mark.parametrize("optional", [False, True])
def test_layers_without_biases_get_zeros_or_none(optional: bool) -> None:
    class Biased(Channels):
        optional_bias = optional

    seen: list[int] = []

    def linear(x: Tensor, weights: Tensor, *bias: Tensor) -> Tensor:
        seen.append(len(bias))
        return x @ weights.T

    class Matrices(Biased):
        def tensor(self, array: Array) -> Tensor:
            return array

        def array(self, tensor: Tensor) -> Array:
            return np.asarray(tensor)

    table = backend(Matrices().fully_connected(linear, lambda n: lambda x: x))
    x, weights = np.ones((2, 1, 1, 3), np.float32), np.ones((4, 1, 1, 3), np.float32)
    layer = mpsref.FullyConnected(1)
    assert layer.forward(x, weights, backend=table).ravel().tolist() == [3] * 8
    layer.forward(x, weights, np.ones(4, np.float32), backend=table)
    assert seen == [not optional, 1]


def test_a_missing_framework_and_its_extra() -> None:
    class Missing(Channels):
        title = "Missing"
        package = "no_such_framework"

    assert Missing().unavailable() == 'Missing is not installed: pip install -e ".[no_such_framework]"'
    assert LINEAR.unavailable() is None
    assert LINEAR.described() == f"CPU, Linear {np.__version__}"


def test_ways() -> None:
    spec = PoolingMax(3, 2, edge_mode="clamp")
    problem = spec.problems["forward"](spec, (1, 6, 6, 1), (3, 3))
    assert not frameworks.adapted(problem, frameworks.pytorch).is_padded
    spec = PoolingMax(3, 1, offset=(-2, 4))
    problem = spec.problems["forward"](spec, (1, 6, 6, 1), (4, 9))
    found = frameworks.adapted(problem, frameworks.pytorch)
    assert found.is_padded
    assert found.keywords["padding"] == (0, 0)
    assert found.copy(np.ones((1, 6, 6, 1))).shape == (1, 6, 11, 1)


@pytest.mark.parametrize("method", ["forward", "gradient_data"])
def test_a_transposed_convolution_without_words_is_computed_whole(method: str) -> None:
    spec = ConvolutionTranspose((2, 3), strides=2, kernel_offset=(-9, 4))
    size = {"forward": "output_size", "gradient_data": "gradient_size"}[method]
    problem = spec.problems[method](spec, (1, 3, 4, 1), 1, **{size: (5, 5)})
    with pytest.raises(UnsupportedError):
        frameworks.pytorch(problem)
    found = frameworks.adapted_transposed(problem, frameworks.pytorch)
    assert found.is_padded
    assert found.keywords["padding"] == found.keywords["output_padding"] == (0, 0)
    assert found.extend(np.ones((1, 5, 5, 1))).shape == (1, 6, 9, 1)


class Sums(Framework):
    """A layer whose gradients of gamma and beta are the sums that a framework returns, of a batch."""

    title, package, differentiated = "Sums", "numpy", 0

    def tensor(self, array: Array) -> Tensor:
        return array

    def array(self, tensor: Tensor) -> Array:
        return np.asarray(tensor)

    def differentiate(self, function: Function, tensors: list[Tensor], g: Tensor, count: int) -> Sequence[Tensor]:
        self.differentiated += 1
        groups, x = function(), tensors[0].astype(np.float64)
        split = x.reshape(*x.shape[:3], groups, -1)
        xhat = (split - split.mean((1, 2, 4), keepdims=True)) / np.sqrt(split.var((1, 2, 4), keepdims=True) + 1)
        return [np.zeros_like(g), (g * xhat.reshape(x.shape)).sum((0, 1, 2)), g.sum((0, 1, 2))]


@pytest.mark.parametrize("spec", [mpsref.InstanceNormalization(1.0), mpsref.GroupNormalization(2, 1.0)])
@pytest.mark.parametrize(("images", "calls"), [(3, 4), (1100, 2)])
def test_gradients_of_parameters_of_many_images_are_one_call(spec: Any, images: int, calls: int) -> None:
    sums = Sums()
    table = sums.group_normalization(type(spec), lambda problem: lambda: problem.groups)
    x, g = np.random.default_rng(3).standard_normal((2, images, 2, 1, 4)).astype(np.float32)
    found, expected = (spec.gradient(g, x, backend=one) for one in (backend(table), "reference"))
    for one, other in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert sums.differentiated == calls
