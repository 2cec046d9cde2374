"""Neurons: every legal range of the parameters, and images that do not fit. Each error says what to do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mpsref import ShapeError
from mpsref.kernels.neuron import TYPES, Neuron

X = np.ones((2, 3, 4, 3), np.float32)
NEEDS = {
    "none": {},
    "relu": {"a": 0.0},
    "linear": {"a": 1.0, "b": 0.0},
    "sigmoid": {},
    "hardsigmoid": {"a": 0.2, "b": 0.5},
    "tanh": {"a": 1.0, "b": 1.0},
    "absolute": {},
    "softplus": {"a": 1.0, "b": 1.0},
    "softsign": {},
    "elu": {"a": 1.0},
    "relun": {"a": 1.0, "b": 6.0},
    "power": {"a": 1.0, "b": 0.0, "c": 1.0},
    "exponential": {"a": 1.0, "b": 0.0, "c": -1.0},
    "logarithm": {"a": 1.0, "b": 0.0, "c": -1.0},
    "gelu": {},
}


def test_types_have_apples_numbers() -> None:
    assert len(TYPES) == 16
    assert [TYPES.index(name) for name in ("none", "relu", "elu", "prelu", "logarithm", "gelu")] == [
        0,
        1,
        9,
        10,
        14,
        15,
    ]
    for number, name in enumerate(TYPES):
        data = [0.5] if name == "prelu" else None
        assert Neuron(number, data=data) == Neuron(np.int64(number), data=data) == Neuron(name, data=data)


@pytest.mark.parametrize(("kind", "defaults"), NEEDS.items())
def test_defaults_and_parameters_that_are_not_needed(kind: str, defaults: dict[str, float]) -> None:
    neuron = Neuron(kind)
    assert (neuron.a, neuron.b, neuron.c) == tuple(defaults.get(name, 0.0) for name in "abc")
    assert neuron.data is None
    given = Neuron(kind, 0.5, 0.25, 2.0)
    assert (given.a, given.b, given.c) == tuple(
        number if name in defaults else 0.0 for name, number in zip("abc", (0.5, 0.25, 2.0), strict=True)
    )
    assert dataclasses.replace(given) == given
    assert str(neuron).count("=") == len(defaults)


def test_minus_zero_is_zero() -> None:
    assert repr(Neuron("relu", a=-0.0)) == "Neuron('relu', a=0.0)"


@pytest.mark.parametrize("kind", ["exponential", "logarithm"])
def test_bases(kind: str) -> None:
    for legal in (-1, 2, 0.5, 1e-3):
        assert Neuron(kind, c=legal).c == legal
    for bad in (0, -0.5, -2, -1.0000001):
        with pytest.raises(ValueError, match=r"^c is .*; as the base of .* it must be > 0"):
            Neuron(kind, c=bad)
    assert Neuron("exponential", c=1).c == 1
    with pytest.raises(ValueError, match=r"^c is 1.0; .* not 1"):
        Neuron("logarithm", c=1)


def test_data() -> None:
    for legal in ([0.5, 1], (0.5, 1), np.array([0.5, 1]), np.array([0.5, 1], np.float16)):
        assert Neuron("prelu", data=legal).data == (0.5, 1.0)
    with pytest.raises(ValueError, match="data is None; PReLU needs one slope for each channel"):
        Neuron("prelu")
    with pytest.raises(ValueError, match=r"a is 0.25; PReLU has a slope for each channel"):
        Neuron("prelu", a=0.25, data=[1])
    for bad in ([], np.empty((0,)), [[1, 2]], np.ones((2, 2)), 0.5):
        with pytest.raises(ValueError, match=r"data has shape .*; it must be one-dimensional and not empty"):
            Neuron("prelu", data=bad)
    with pytest.raises(ValueError, match=r"data\[1\] is nan"):
        Neuron("prelu", data=[1, np.nan])
    with pytest.raises(TypeError, match=r"data\[0\] is 'x'"):
        Neuron("prelu", data=["x"])
    for kind in TYPES:
        if kind != "prelu":
            with pytest.raises(ValueError, match=f"data is given, and type is '{kind}'"):
                Neuron(kind, data=[1.0])


@pytest.mark.parametrize("backend", ["reference", "cpu", "metal:clang"])
def test_images_that_do_not_fit(backend: str) -> None:
    prelu = Neuron("prelu", data=[0.5, 0.25])
    for call in (
        prelu.forward,
        lambda x, **k: prelu.gradient(x, x, **k),
        lambda x, **k: prelu.parameter_gradient(x, x, **k),
    ):
        with pytest.raises(ShapeError, match=r"data has 2 values and the image 3 channels \(axis 3\)"):
            call(X, backend=backend)
    neuron = Neuron("gelu")
    for other in (X[:1], X[:, 1:], X[:, :, 1:], X[..., 1:]):
        with pytest.raises(ShapeError, match=r"x has shape .*; with g of shape .* it must have shape"):
            neuron.gradient(other, X, backend=backend)
    with pytest.raises(ShapeError, match="rank 3"):
        neuron.forward(X[0], backend=backend)
    with pytest.raises(TypeError, match="dtype int64"):
        neuron.forward(X.astype(np.int64), backend=backend)
    with pytest.raises(ValueError, match="type is 'gelu'; only 'prelu' has parameters to learn"):
        neuron.parameter_gradient(X, X, backend=backend)
    with pytest.raises(ValueError, match="shares memory"):
        neuron.forward(X, out=X, backend=backend)
    if backend != "reference":
        with pytest.raises(TypeError, match="takes float16, float32"):
            neuron.forward(X.astype(np.float64), backend=backend)
