"""Neurons: the spec's table of values, kinks, non-finite values, storage."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.kernels.neuron import TYPES, Neuron, neuron_codec, slope, value
from tests import examples

BACKENDS = ("reference", "cpu", "metal:clang")
X = np.array([-3, -1, -0.5, 0, 0.5, 1, 3])

TABLE: list[tuple[Neuron, list[float] | None, list[float]]] = [
    (Neuron("relu", a=0.1), [-0.3, -0.1, -0.05, 0, 0.5, 1, 3], [0.1, 0.1, 0.1, 1, 1, 1, 1]),
    (Neuron("linear", a=2, b=1), [-5, -1, 0, 1, 2, 3, 7], [2] * 7),
    (
        Neuron("sigmoid"),
        [0.0474259, 0.268941, 0.377541, 0.5, 0.622459, 0.731059, 0.952574],
        [0.0451767, 0.196612, 0.235004, 0.25, 0.235004, 0.196612, 0.0451767],
    ),
    (Neuron("hardsigmoid", a=0.2, b=0.5), [0, 0.3, 0.4, 0.5, 0.6, 0.7, 1], [0, 0.2, 0.2, 0.2, 0.2, 0.2, 0]),
    (
        Neuron("tanh", a=1, b=1),
        [-0.995055, -0.761594, -0.462117, 0, 0.462117, 0.761594, 0.995055],
        [0.00986604, 0.419974, 0.786448, 1, 0.786448, 0.419974, 0.00986604],
    ),
    (Neuron("absolute"), [3, 1, 0.5, 0, 0.5, 1, 3], [-1, -1, -1, 0, 1, 1, 1]),
    (
        Neuron("softplus", a=1, b=1),
        [0.0485874, 0.313262, 0.474077, 0.693147, 0.974077, 1.31326, 3.04859],
        [0.0474259, 0.268941, 0.377541, 0.5, 0.622459, 0.731059, 0.952574],
    ),
    (
        Neuron("softsign"),
        [-0.75, -0.5, -0.333333, 0, 0.333333, 0.5, 0.75],
        [0.0625, 0.25, 0.444444, 1, 0.444444, 0.25, 0.0625],
    ),
    (
        Neuron("elu", a=0.5),
        [-0.475106, -0.31606, -0.196735, 0, 0.5, 1, 3],
        [0.0248935, 0.18394, 0.303265, 1, 1, 1, 1],
    ),
    (Neuron("relun", a=0.1, b=1), [-0.3, -0.1, -0.05, 0, 0.5, 1, 1], [0.1, 0.1, 0.1, 1, 1, 0, 0]),
    (Neuron("power", a=1, b=4, c=2), [1, 9, 12.25, 16, 20.25, 25, 49], [2, 6, 7, 8, 9, 10, 14]),
    (Neuron("exponential"), [0.0497871, 0.367879, 0.606531, 1, 1.64872, 2.71828, 20.0855], [
        0.0497871, 0.367879, 0.606531, 1, 1.64872, 2.71828, 20.0855,
    ]),
    (
        Neuron("exponential", a=1, b=0, c=2),
        [0.125, 0.5, 0.707107, 1, 1.41421, 2, 8],
        [0.0866434, 0.346574, 0.490129, 0.693147, 0.980258, 1.38629, 5.54518],
    ),
    (
        Neuron("logarithm", a=1, b=4, c=-1),
        [0, 1.09861, 1.25276, 1.38629, 1.50408, 1.60944, 1.94591],
        [1, 0.333333, 0.285714, 0.25, 0.222222, 0.2, 0.142857],
    ),
    (
        Neuron("logarithm", a=1, b=4, c=2),
        [0, 1.58496, 1.80735, 2, 2.16993, 2.32193, 2.80735],
        [1.4427, 0.480898, 0.412199, 0.360674, 0.320599, 0.288539, 0.206099],
    ),
    (
        Neuron("gelu"),
        [-0.00404969, -0.158655, -0.154269, 0, 0.345731, 0.841345, 2.99595],
        [-0.0119456, -0.0833155, 0.132505, 0.5, 0.867495, 1.08332, 1.01195],
    ),
]  # fmt: skip

EVERY = [
    *(Neuron(kind) for kind in TYPES if kind not in ("prelu", "power", "logarithm")),
    Neuron("prelu", data=[0.25, -0.5, 2.0]),
    Neuron("power", a=0.75, b=0.5, c=3),
    Neuron("power", a=0.5, b=4.5, c=1.5),
    Neuron("power", a=-0.5, b=4.5, c=-0.5),
    Neuron("logarithm", a=0.5, b=5, c=2),
    Neuron("relun", a=-0.5, b=1),
    Neuron("relun", a=0.25, b=-1),
    Neuron("tanh", a=-1.5, b=0.5),
    Neuron("softplus", a=0.5, b=-2),
    Neuron("exponential", a=-0.5, b=0.25, c=0.5),
    Neuron("hardsigmoid", a=-0.5, b=0.25),
]


def image(values: Any, dtype: Any = np.float32) -> Array:
    return np.asarray(values, dtype).reshape(1, 1, -1, 1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("neuron", "values", "slopes"), TABLE, ids=lambda part: str(part)[:40])
def test_worked_values(neuron: Neuron, values: list[float], slopes: list[float], backend: str) -> None:
    x = image(X)
    y = neuron.forward(x, backend=backend)
    dx = neuron.gradient(np.ones_like(x), x, backend=backend)
    np.testing.assert_allclose(y.ravel(), values, rtol=7e-6, atol=6e-7)
    np.testing.assert_allclose(dx.ravel(), slopes, rtol=7e-6, atol=6e-7)


def test_the_table_is_printed_to_six_digits() -> None:
    """In float64 nothing is left but the rounding of what was printed."""
    for neuron, values, slopes in TABLE:
        np.testing.assert_allclose(value(neuron, X), values, rtol=6e-6, atol=1e-12)
        np.testing.assert_allclose(slope(neuron, X), slopes, rtol=6e-6, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("neuron", "points", "slopes"),
    [
        (Neuron("relu", a=0.25), [0, -0.0], [1, 1]),
        (Neuron("relu"), [0, -0.0], [1, 1]),
        (Neuron("prelu", data=[0.25]), [0, -0.0], [1, 1]),
        (Neuron("elu", a=3), [0, -0.0], [1, 1]),
        (Neuron("absolute"), [0, -0.0], [0, 0]),
        (Neuron("softsign"), [0, -0.0], [1, 1]),
        (Neuron("hardsigmoid", a=0.25, b=0.5), [-2, 2, -2.5, 2.5], [0.25, 0.25, 0, 0]),
        (Neuron("hardsigmoid", a=-0.25, b=0.5), [-2, 2, -2.5, 2.5], [-0.25, -0.25, 0, 0]),
        (Neuron("relun", a=0.125, b=1), [0, -0.0, 1, 0.5, -1], [1, 1, 0, 1, 0.125]),
        (Neuron("relun", a=-1, b=2), [-2, -3, -1, 2], [0, 0, -1, 0]),
        (Neuron("relun", a=0.5, b=-1), [0, -2, -3, 1], [0, 0, 0.5, 0]),
        (Neuron("relun", a=0.5, b=0), [0, -0.0, -1], [0, 0, 0.5]),
        (Neuron("power", a=2, b=0, c=0), [0, 1, -3], [0, 0, 0]),
        (Neuron("power", a=2, b=0, c=1), [0, 1, -3], [2, 2, 2]),
        (Neuron("power", a=2, b=0, c=2), [0, 1], [0, 8]),
    ],
    ids=str,
)
def test_slopes_at_kinks_are_exact(neuron: Neuron, points: list[float], slopes: list[float], backend: str) -> None:
    x = image(points)
    assert neuron.gradient(np.ones_like(x), x, backend=backend).ravel().tolist() == slopes


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_of_the_slopes_by_hand(backend: str) -> None:
    x = np.array([-1, 2, -3, -0.5, 0, -0.0], np.float32).reshape(1, 3, 1, 2)
    g = np.array([1, 10, 100, 2, 5, 7], np.float32).reshape(1, 3, 1, 2)
    found = Neuron("prelu", data=[0.5, 3]).parameter_gradient(g, x, backend=backend)
    assert found.tolist() == [-301.0, -1.0]
    assert found.dtype == np.float32
    half = Neuron("prelu", data=[0.5, 3]).parameter_gradient(g.astype("f2"), x.astype("f2"), backend=backend)
    assert half.tolist() == [-301.0, -1.0]
    assert half.dtype == np.float32


SPECIAL = np.array([np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-45, 0.0, -0.0, 1e4, -1e4, 100, -100, 88, -88])


@pytest.mark.parametrize("neuron", [n for n in EVERY if n.data is None], ids=str)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_non_finite_values(neuron: Neuron, backend: str) -> None:
    """NaN in gives NaN out, infinities follow the formulas, and both backends do the same."""
    x = image(SPECIAL)
    y = neuron.forward(x, backend=backend).ravel()
    dx = neuron.gradient(np.ones_like(x), x, backend=backend).ravel()
    assert np.isnan(y[0])
    assert np.isnan(dx[0]) == (neuron.type not in ("none", "linear"))
    with np.errstate(over="ignore"):
        for found, function in ((y, value), (dx, slope)):
            np.testing.assert_allclose(found, function(neuron, SPECIAL).astype("f4"), rtol=2e-5, atol=1e-37)
    finite = np.isfinite(SPECIAL)
    if neuron.type not in ("power", "exponential", "logarithm"):
        assert np.isfinite(y[finite]).all()
        assert np.isfinite(dx[finite]).all()


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_values_at_infinity(backend: str) -> None:
    def ends(neuron: Neuron) -> list[float]:
        x = image([np.inf, -np.inf])
        return [
            *neuron.forward(x, backend=backend).ravel(),
            *neuron.gradient(np.ones_like(x), x, backend=backend).ravel(),
        ]

    assert ends(Neuron("sigmoid")) == [1, 0, 0, 0]
    assert ends(Neuron("tanh", a=2, b=3)) == [2, -2, 0, 0]
    assert ends(Neuron("softplus")) == [np.inf, 0, 1, 0]
    assert ends(Neuron("elu", a=0.5)) == [np.inf, -0.5, 1, 0]
    assert ends(Neuron("relu", a=0.5)) == [np.inf, -np.inf, 1, 0.5]
    assert ends(Neuron("relun", a=0.5, b=6)) == [6, -np.inf, 0, 0.5]
    assert ends(Neuron("hardsigmoid")) == [1, 0, 0, 0]
    assert ends(Neuron("exponential", c=2)) == [np.inf, 0, np.inf, 0]


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_powers_and_logarithms_at_the_end_of_their_domain(backend: str) -> None:
    def at(neuron: Neuron, point: float) -> tuple[float, float]:
        x = image([point])
        return (
            neuron.forward(x, backend=backend).item(),
            neuron.gradient(np.ones_like(x), x, backend=backend).item(),
        )

    assert at(Neuron("power", a=2, c=3), 0) == (0, 0)
    assert at(Neuron("power", a=2, c=1), 0) == (0, 2)
    assert at(Neuron("power", a=2, c=0.5), 0) == (0, np.inf)
    assert at(Neuron("power", a=-2, c=0.5), 0) == (0, -np.inf)
    assert at(Neuron("power", a=2, c=0), 0) == (1, 0)
    assert at(Neuron("power", a=2, c=-1), 0) == (np.inf, -np.inf)
    assert np.isnan(at(Neuron("power", c=0.5), -1)).all()
    assert at(Neuron("power", c=3), -2) == (-8, 12)
    assert at(Neuron("power", c=4), -2) == (16, -32)
    assert at(Neuron("logarithm"), 0) == (-np.inf, np.inf)
    assert at(Neuron("logarithm", a=-1), 0) == (-np.inf, -np.inf)
    forward, gradient = at(Neuron("logarithm", a=2), -1)
    assert np.isnan(forward)
    assert gradient == -1


@pytest.mark.parametrize("neuron", EVERY, ids=str)
def test_no_warning_for_finite_values(neuron: Neuron) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in (np.float16, np.float32, np.float64):
            x = np.repeat(np.clip(SPECIAL[np.isfinite(SPECIAL)], -6e4, 6e4).astype(dtype), 3).reshape(1, 1, -1, 3)
            assert value(neuron, x).dtype == slope(neuron, x).dtype == dtype
        x = np.repeat(SPECIAL[np.isfinite(SPECIAL)].astype(np.float32), 3).reshape(1, 1, -1, 3)
        neuron.forward(x)
        neuron.gradient(x, x)


@examples(100)
@given(st.data())
def test_specs_print_and_tokens_read_back(data: st.DataObject) -> None:
    number = st.floats(width=32, allow_nan=False, allow_infinity=False)
    kind = data.draw(st.sampled_from(TYPES))
    if kind == "prelu":
        neuron = Neuron(kind, data=data.draw(st.lists(number, min_size=1, max_size=4)))
    else:
        c = data.draw(st.sampled_from([-1, 0.5, 2, 10]) if kind in ("exponential", "logarithm") else number)
        neuron = Neuron(kind, data.draw(number), data.draw(number), c)
    assert eval(repr(neuron)) == neuron
    assert hash(eval(repr(neuron))) == hash(neuron)
    token = neuron_codec("f")
    text = token.write(neuron)
    assert "," not in text
    match = re.fullmatch(token.pattern, text)
    assert match is not None
    assert token.read(*match.groups()) == neuron
