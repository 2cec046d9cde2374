"""What does not fit a kernel with weights: a clear error that names the parameter, and nothing computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpsref import Convolution, Neuron, ShapeError, UnsupportedError

F32 = np.float32
X, G = np.ones((2, 5, 6, 4), F32), np.ones((2, 5, 6, 8), F32)
WEIGHTS, BIASES = np.ones((8, 3, 2, 4), F32), np.ones(8, F32)
SPEC = Convolution((3, 2))
for _shared in (X, G, WEIGHTS, BIASES):
    _shared.flags.writeable = False


CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "groups do not divide the input channels": (
        lambda: Convolution((3, 2), groups=3).forward(X, WEIGHTS),
        ShapeError, r"groups is 3; it must divide the number of input channels, 4",
    ),
    "groups do not divide the output channels": (
        lambda: Convolution((3, 2), groups=4).forward(X, np.ones((6, 3, 2, 1), F32)),
        ShapeError, r"groups is 4; it must divide the number of output channels, 6",
    ),
    "weights in the order of PyTorch": (
        lambda: SPEC.forward(X, np.ones((8, 4, 3, 2), F32)),
        ShapeError,
        r"weights has shape \(8, 4, 3, 2\).*must have shape \(8, 3, 2, 4\).*pass weights.transpose\(0, 2, 3, 1\)",
    ),
    "weights of another kernel size": (
        lambda: SPEC.forward(X, np.ones((8, 3, 3, 4), F32)),
        ShapeError, r"with x of shape \(2, 5, 6, 4\) it must have shape \(8, 3, 2, 4\)",
    ),
    "weights of all channels where there are groups": (
        lambda: Convolution((3, 2), groups=2).forward(X, WEIGHTS), ShapeError, r"it must have shape \(8, 3, 2, 2\)",
    ),
    "weights of the wrong rank": (
        lambda: SPEC.forward(X, np.ones((8, 3, 2), F32)), ShapeError, r"weights has shape \(8, 3, 2\)",
    ),
    "no output channels": (
        lambda: SPEC.forward(X, np.ones((0, 3, 2, 4), F32)), ShapeError, r"weights has shape \(0, 3, 2, 4\)",
    ),
    "weights of integers": (
        lambda: SPEC.forward(X, np.ones((8, 3, 2, 4), int)),
        TypeError, r"weights has dtype int64; it must be float16 or float32",
    ),
    "no weights": (lambda: SPEC.forward(X, None), TypeError, r"weights has dtype object"),
    "too few biases": (
        lambda: SPEC.forward(X, WEIGHTS, np.ones(7, F32)), ShapeError, r"biases has shape \(7,\); it must be \(8,\)",
    ),
    "biases as an image": (
        lambda: SPEC.forward(X, WEIGHTS, np.ones((1, 1, 1, 8), F32)), ShapeError, r"biases has shape \(1, 1, 1, 8\)",
    ),
    "a source of rank 3": (lambda: SPEC.forward(X[0], WEIGHTS), ShapeError, r"x has shape \(5, 6, 4\) of rank 3"),
    "an empty result": (
        lambda: SPEC.forward(X, WEIGHTS, output_size=(0, 3)),
        ValueError, r"output_size\[0\] is 0; it must be an integer >= 1",
    ),
    "a gradient with other channels than the weights": (
        lambda: SPEC.gradient_data(G[..., :6], WEIGHTS, X.shape),
        ShapeError, r"weights has shape \(8, .*with g of shape \(2, 5, 6, 6\) .* it must have shape \(6, ",
    ),
    "a gradient of another batch": (
        lambda: SPEC.gradient_data(G[:1], WEIGHTS, X.shape), ShapeError,
        r"g has shape \(1, 5, 6, 8\).* a source of shape \(2, 5, 6, 4\) it must have shape \(2, 5, 6, 8\)",
    ),
    "another batch of the source": (
        lambda: SPEC.gradient_weights(G, X[:1]), ShapeError,
        r"g has shape \(2, 5, 6, 8\); with x of shape \(1, 5, 6, 4\) it must have shape \(1, 5, 6, 8\)",
    ),
    "a source shape of rank 3": (
        lambda: SPEC.gradient_data(G, WEIGHTS, (5, 6, 4)), ShapeError, r"source_shape has shape \(5, 6, 4\) of rank 3",
    ),
    "a source with other channels than the weights": (
        lambda: SPEC.gradient_data(G, WEIGHTS, (2, 5, 6, 3)),
        ShapeError, r"a source of shape \(2, 5, 6, 3\) it must have shape \(8, 3, 2, 3\)",
    ),
    "groups that do not divide the channels of a gradient": (
        lambda: Convolution(1, groups=4).gradient_weights(G[..., :6], X),
        ShapeError, r"groups is 4; it must divide the number of output channels, 6",
    ),
    "a kernel size beyond memory": (
        lambda: Convolution(2**40).gradient_weights(G, X), ShapeError, r"cannot be allocated",
    ),
    "a data gradient with clamp": (
        lambda: Convolution((3, 2), edge_mode="clamp").gradient_data(G, WEIGHTS, X.shape),
        UnsupportedError, r'edge_mode is "clamp"; the data gradient is defined for "zero" only',
    ),
    "a data gradient with a neuron": (
        lambda: Convolution((3, 2), neuron=Neuron("relu")).gradient_data(G, WEIGHTS, X.shape),
        ValueError, r"neuron is Neuron\('relu', a=0.0\): gradients need the value before the neuron",
    ),
    "a weight gradient with a neuron": (
        lambda: Convolution((3, 2), neuron=Neuron("relu")).gradient_weights(G, X), ValueError, r"use neuron=None",
    ),
    "slopes for other channels": (
        lambda: Convolution((3, 2), neuron=Neuron("prelu", data=(1.0, 2.0))).forward(X, WEIGHTS),
        ShapeError, r"neuron's data has 2 values and the result 8 channels",
    ),
    "one array for two results": (
        lambda: SPEC.gradient_weights(G, X, out=np.empty(WEIGHTS.shape, F32)),
        TypeError, r"out has 1 arrays; the operation has 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    call, error, message = CALLS[name]
    with pytest.raises(error, match=message):
        call()


def test_lists_and_other_arrays_are_welcome() -> None:
    y = Convolution(1).forward([[[[1.0, 2.0]]]], [[[[3.0, 4.0]]]], [5.0])
    assert y.tolist() == [[[[16.0]]]]
