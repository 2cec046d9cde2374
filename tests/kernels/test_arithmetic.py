"""Arithmetic of two images: worked numbers, every combination of strides, bad input."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mpsref import Arithmetic, NoGradientError, ShapeError
from mpsref.arguments.arrays import Array
from mpsref.kernels.arithmetic import NAMES

F32 = np.float32


def image(numbers: Any, *shape: int) -> Array:
    return np.array(numbers, F32).reshape(shape)


def test_a_product_and_its_gradients(backend: str) -> None:
    """Numbers that a public program records from hardware."""
    x, y = image([0, 1, 2, 3], 1, 2, 2, 1), image([4, 5, 6, 7], 1, 2, 2, 1)
    multiply = Arithmetic("multiply")
    assert multiply.forward(x, y, backend=backend).ravel().tolist() == [0, 5, 12, 21]
    g = image([-6, -4, 8, 2], 1, 2, 2, 1)
    dx, dy = multiply.gradient(g, x, y, backend=backend)
    assert dx.ravel().tolist() == [-24, -20, 48, 14]
    assert dy.ravel().tolist() == [0, -4, 16, 6]


def test_everything_at_once(backend: str) -> None:
    spec = Arithmetic("subtract", 2, 3, 1, secondary_strides=(0, 0, 1), minimum_value=-10, maximum_value=8)
    x, y = image(range(8), 1, 2, 2, 2), image([1, 2], 1, 1, 1, 2)
    assert spec.forward(x, y, backend=backend).reshape(4, 2).tolist() == [[-2, -3], [2, 1], [6, 5], [8, 8]]
    dx, dy = spec.gradient(np.ones_like(x), x, y, backend=backend)
    assert dx.reshape(4, 2).tolist() == [[2, 2], [2, 2], [2, 2], [0, 0]]
    assert dy.ravel().tolist() == [-9, -9]


@pytest.mark.parametrize(
    ("operation", "expected"), [("add", 14.5), ("subtract", -3.5), ("multiply", 45.5), ("divide", 5 / 9.0 + 0.5)]
)
def test_the_four_operations(backend: str, operation: Any, expected: float) -> None:
    r = Arithmetic(operation, 2.5, 3, 0.5).forward(image([2], 1, 1, 1, 1), image([3], 1, 1, 1, 1), backend=backend)
    np.testing.assert_allclose(r.item(), expected, rtol=1e-6)


def test_division_by_zero(ieee_backend: str) -> None:
    x, y = image([1, -1, 0, 1], 1, 1, 4, 1), image([0, 0, 0, np.nan], 1, 1, 4, 1)
    r = Arithmetic("divide").forward(x, y, backend=ieee_backend).ravel().tolist()
    assert r[:2] == [math.inf, -math.inf]
    assert np.isnan(r[2:]).all()
    clamped = Arithmetic("divide", minimum_value=-3, maximum_value=5).forward(x, y, backend=ieee_backend).ravel()
    assert clamped[:2].tolist() == [5, -3]
    assert np.isnan(clamped[2:]).all()


def test_where_a_clamp_holds_no_gradient_passes_not_even_nan(ieee_backend: str) -> None:
    spec = Arithmetic("add", minimum_value=-1, maximum_value=1)
    x, y = image([1, 0.5, -1, np.nan], 1, 1, 4, 1), np.zeros((1, 1, 4, 1), F32)
    dx, _ = spec.gradient(image([np.nan, 2, np.inf, 3], 1, 1, 4, 1), x, y, backend=ieee_backend)
    assert dx.ravel().tolist() == [0, 2, 0, 0]


def test_one_channel_is_chosen_by_a_stride_of_0_and_an_offset(backend: str) -> None:
    x, y = image(range(12), 1, 2, 2, 3), image(range(100, 124), 1, 3, 2, 4)
    spec = Arithmetic("add", secondary_strides=(1, 1, 0), secondary_offset=(1, 0, 2))
    expected = x + y[:, 1:, :, 2:3]
    np.testing.assert_array_equal(spec.forward(x, y, backend=backend), expected)
    dx, dy = spec.gradient(x, x.shape, y.shape, backend=backend)
    np.testing.assert_array_equal(dx, x)
    placed = np.zeros_like(y)
    placed[:, 1:, :, 2] = x.sum(axis=3)
    np.testing.assert_array_equal(dy, placed)


def operands(bits: tuple[int, ...], rng: np.random.Generator) -> tuple[dict[str, Any], list[tuple[int, ...]]]:
    """Strides, offsets, and shapes that fit: 2 images, and where an operand walks 4 x 3 x 5 elements."""
    fields, shapes = {}, []
    for name, strides in (("primary", bits[:3]), ("secondary", bits[3:])):
        offset = tuple(int(o) for o in rng.integers(0, 3, 3))
        more = rng.integers(1, 3, 3)
        lengths = (o + (n if t else int(k)) for o, n, t, k in zip(offset, (4, 3, 5), strides, more, strict=True))
        fields |= {f"{name}_strides": strides, f"{name}_offset": offset}
        shapes.append((2, *lengths))
    return fields, shapes


STRIDES = list(itertools.product((0, 1), repeat=6))


def by_hand(spec: Arithmetic, x: Array, y: Array) -> Array:
    """Element by element, from the definition."""
    primary, secondary = spec.operands
    result = np.zeros(spec.result_shape(x.shape, y.shape))
    p, q = spec.primary_scale, spec.secondary_scale
    for n, *index in np.ndindex(result.shape):
        a, b = (
            image[(n, *(o + t * i for o, t, i in zip(one.offset, one.strides, index, strict=True)))]
            for one, image in ((primary, x), (secondary, y))
        )
        r = {"add": p * a + q * b, "subtract": p * a - q * b, "multiply": p * a * q * b, "divide": p * a / (q * b)}
        result[(n, *index)] = r[spec.operation] + spec.bias
    return np.clip(result, spec.minimum_value, spec.maximum_value)


@pytest.mark.parametrize("operation", NAMES)
def test_all_64_combinations_of_strides(operation: Any) -> None:
    """Against the definition, and the gradient against central differences, in float64."""
    rng = np.random.default_rng(NAMES.index(operation))
    for bits in STRIDES:
        fields, shapes = operands(bits, rng)
        spec = Arithmetic(operation, 1.5, -0.75, 0.25, **fields, minimum_value=-1.5, maximum_value=1.25)
        x, y = (rng.uniform(0.5, 2, shape) * rng.choice([-1, 1], shape) for shape in shapes)
        r = spec.forward(x, y)
        np.testing.assert_allclose(r, by_hand(spec, x, y), rtol=1e-14)
        if operation == "divide":
            continue
        g = rng.standard_normal(r.shape)
        gradients = spec.gradient(g, x, y)
        for k, (value, d) in enumerate(zip((x, y), gradients, strict=True)):
            assert d.shape == value.shape
            direction = rng.standard_normal(value.shape)
            moved = [
                [value + step * direction if k == j else other for j, other in enumerate((x, y))]
                for step in (1e-6, -1e-6)
            ]
            change = (g * (spec.forward(*moved[0]) - spec.forward(*moved[1]))).sum() / 2e-6
            np.testing.assert_allclose(change, (d * direction).sum(), rtol=1e-6, atol=1e-7)


def test_long_sums_stay_accurate(backend: str) -> None:
    """150,000 terms of about 1: a sum in sequence in float32 would be off by more than this."""
    if backend == "reference:input-dtype":
        pytest.skip("this backend sums in the dtype of its inputs, on purpose")
    g = np.random.default_rng(4).uniform(0.5, 1.5, (1, 300, 100, 5)).astype(F32)
    spec = Arithmetic("add", secondary_strides=(0, 0, 0))
    _, dy = spec.gradient(g, g.shape, (1, 1, 1, 1), backend=backend)
    np.testing.assert_allclose(dy.item(), g.sum(dtype=np.float64), rtol=3e-7)


A, B = (1, 4, 3, 5), (1, 1, 1, 5)


@pytest.mark.parametrize(
    ("fields", "x", "y", "text"),
    [
        ({}, A, (1, 4, 3, 1), "axis C x has 5 and y 1.*stride 0"),
        ({}, A, (2, 4, 3, 5), "1 and y 2 images"),
        ({"secondary_offset": (4, 0, 0), "secondary_strides": (0, 1, 1)}, A, A, "secondary_offset is .4, 0, 0."),
        ({"primary_offset": (1, 0, 0)}, A, A, "axis H x has 3 and y 4"),
        ({"secondary_strides": (0, 0, 1)}, A, (1, 1, 1, 4), "axis C"),
    ],
)
def test_shapes_that_do_not_fit(fields: dict[str, Any], x: Any, y: Any, text: str) -> None:
    spec = Arithmetic("add", **fields)
    with pytest.raises(ShapeError, match=text):
        spec.forward(np.zeros(x, F32), np.zeros(y, F32))
    with pytest.raises(ShapeError, match=text):
        spec.gradient(np.zeros(x, F32), x, y)


def test_bad_calls() -> None:
    x, y = np.zeros(A, F32), np.zeros(B, F32)
    spec = Arithmetic("multiply", secondary_strides=(0, 0, 1))
    with pytest.raises(TypeError, match=r"y is the shape .*; Arithmetic.gradient reads its values: pass the array"):
        spec.gradient(x, x, B)
    with pytest.raises(TypeError, match=r"x is the shape .*; Arithmetic.gradient reads its values"):
        replace(spec, operation="add", maximum_value=1).gradient(x, A, y)
    with pytest.raises(NoGradientError, match=r"'divide'.*reciprocal"):
        Arithmetic("divide").gradient(x, x, x)


def test_the_same_array_twice_prepares_no_wrong_call(backend: str) -> None:
    x, y = (np.random.default_rng(seed).standard_normal((1, 2, 2, 3)).astype(np.float32) for seed in (0, 1))
    spec = Arithmetic("multiply")
    for a, b in ((x, x), (x, y), (y, x)):
        np.testing.assert_array_equal(spec.forward(a, b, backend=backend), a * b)
        dx, dy = spec.gradient(np.ones_like(x), a, b, backend=backend)
        np.testing.assert_array_equal(dx, b)
        np.testing.assert_array_equal(dy, a)


@pytest.mark.parametrize("shape", [(1, 1, 200_000, 3), (1, 1, 5_000, 600)])
def test_long_rows_are_summed_in_several_lines(shape: tuple[int, ...]) -> None:
    """Of an operand with one channel: a line begins at another pixel than the row."""
    g, x = (np.random.default_rng(k).standard_normal(shape).astype(np.float32) for k in range(2))
    spec = Arithmetic("multiply", secondary_strides=(1, 1, 0))
    _, dy = spec.gradient(g, x, np.ones((*shape[:3], 1), np.float32), backend="cpu")
    np.testing.assert_allclose(dy, (g.astype(np.float64) * x).sum(axis=3, keepdims=True), rtol=1e-4, atol=1e-3)
