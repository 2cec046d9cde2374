"""The adapter of frameworks, on a framework of a few lines, and its refusals."""

from __future__ import annotations

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


def no_padding(problem: Any) -> frameworks.Words:
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
    table = LINEAR.pooling(PoolingAverage, no_padding, plain_mean)
    outcome = run_case(Case.parse(f"PoolingAverage.{case},seed=1"), backend(table))
    assert outcome.status == "passed", outcome.message


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


def test_dropout_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="dropout of Linear draws its mask itself"):
        mpsref.Dropout(0.5).mask((1, 2, 2, 1), backend=backend(LINEAR.dropout()))


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
    assert not frameworks.way(problem, frameworks.pytorch).grown
    spec = PoolingMax(3, 1, offset=(-2, 4))
    problem = spec.problems["forward"](spec, (1, 6, 6, 1), (4, 9))
    found = frameworks.way(problem, frameworks.pytorch)
    assert found.grown
    assert found.keywords["padding"] == (0, 0)
    assert found.copy(np.ones((1, 6, 6, 1))).shape == (1, 6, 11, 1)


@pytest.mark.parametrize("method", ["forward", "gradient_data"])
def test_a_transposed_convolution_without_words_is_computed_whole(method: str) -> None:
    spec = ConvolutionTranspose((2, 3), strides=2, kernel_offset=(-9, 4))
    size = {"forward": "output_size", "gradient_data": "gradient_size"}[method]
    problem = spec.problems[method](spec, (1, 3, 4, 1), 1, **{size: (5, 5)})
    with pytest.raises(UnsupportedError):
        frameworks.pytorch(problem)
    found = frameworks.transposed_way(problem, frameworks.pytorch)
    assert found.grown
    assert found.keywords["padding"] == found.keywords["output_padding"] == (0, 0)
    assert found.extend(np.ones((1, 5, 5, 1))).shape == (1, 6, 9, 1)
