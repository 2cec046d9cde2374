"""Padding: the header's drawings, NumPy, sums over copies, bad input."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import Pad, ShapeError
from mpsref.arguments.arrays import Array
from mpsref.kernels.pad import EDGES, mapped
from tests import examples

F32 = np.float32
NUMPY: dict[str, dict[str, Any]] = {
    "zero": {},
    "clamp": {"mode": "edge"},
    "mirror": {"mode": "reflect"},
    "mirrorwithedge": {"mode": "symmetric"},
    "constant": {"constant_values": -1.5},
}


def row(length: int) -> Array:
    return np.arange(length, dtype=F32).reshape(1, 1, length, 1)


@pytest.mark.parametrize(
    ("edge_mode", "before", "after", "expected"),
    [
        ("zero", 1, 2, [0, 0, 1, 2, 0, 0]),
        ("clamp", 2, 3, [0, 0, 0, 1, 2, 2, 2, 2]),
        ("mirror", 4, 1, [0, 1, 2, 1, 0, 1, 2, 1]),
        ("mirrorwithedge", 2, 3, [1, 0, 0, 1, 2, 2, 1, 0]),
        ("constant", 1, 1, [7, 0, 1, 2, 7]),
    ],
)
def test_the_drawings_of_the_header(backend: str, edge_mode: Any, before: int, after: int, expected: Any) -> None:
    pad = Pad((0, before, 0), (0, after, 0), edge_mode, fill_value=7)
    assert pad.forward(row(3), backend=backend).ravel().tolist() == expected
    channels = Pad((0, 0, before), (0, 0, after), edge_mode, fill_value=7).forward(row(3).reshape(1, 1, 1, 3))
    assert channels.ravel().tolist() == expected


def test_one_pixel_is_its_own_mirror(backend: str) -> None:
    x = np.full((1, 1, 1, 1), 5, F32)
    for edge_mode in ("clamp", "mirror", "mirrorwithedge"):
        y = Pad((1, 2, 3), (3, 2, 1), edge_mode).forward(x, backend=backend)
        assert y.shape == (1, 5, 5, 5)
        assert (y == 5).all()
        assert Pad((1, 2, 3), (3, 2, 1), edge_mode).gradient(y, x, backend=backend).item() == 5 * 125


def test_a_fill_value_for_each_channel(backend: str) -> None:
    x = np.zeros((1, 1, 1, 2), F32)
    pad = Pad((0, 1, 1), (0, 0, 0), "constant", fill_value=9, fill_values=(1.5, 0.1, 3, 4))
    y = pad.forward(x, backend=backend)
    np.testing.assert_array_equal(y[0, 0], np.array([[1.5, 0.1, 3], [1.5, 0, 0]], F32))
    half = pad.forward(x.astype(np.float16), backend=backend)
    assert half[0, 0, 0, 1] == np.float16(0.1)


sizes = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 4))


@given(sizes, sizes, st.tuples(*[st.integers(1, 5)] * 3), st.sampled_from(EDGES))
@examples(60)
def test_numpy(before: Any, after: Any, shape: Any, edge_mode: Any) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (2, *shape)).astype(F32)
    widths = ((0, 0), *zip(before, after, strict=True))
    spec = Pad(before, after, edge_mode, fill_value=-1.5)
    expected = np.pad(x, widths, **NUMPY[edge_mode])
    g = np.arange(expected.size, dtype=F32).reshape(expected.shape) % 17
    linear = expected - np.pad(0 * x, widths, **NUMPY[edge_mode])
    for backend in ("reference", "cpu"):
        np.testing.assert_array_equal(spec.forward(x, backend=backend), expected)
        dx = spec.gradient(g, x, backend=backend)
        assert (dx.astype(np.float64) * x).sum() == (g.astype(np.float64) * linear).sum()


def test_the_table_is_the_definition() -> None:
    for edge_mode, length, before in itertools.product(EDGES, range(1, 6), range(12)):
        problem = Pad((0, before, 0), (0, 11, 0), edge_mode).problems["forward"](
            Pad((0, before, 0), (0, 11, 0), edge_mode), (1, 1, length, 1)
        )
        table = [None if j < 0 else j for j in problem.gather()[1].tolist()]
        assert table == [mapped(edge_mode, i - before, length) for i in range(before + length + 11)]


def test_copies_add_up_in_float32_at_least(backend: str) -> None:
    """3,000 copies of a border pixel in float16: a sum in float16 would stop at 2048."""
    if backend == "reference:input-dtype":
        pytest.skip("this backend sums in the dtype of its inputs, on purpose")
    g = np.ones((1, 1, 3001, 1), np.float16)
    dx = Pad((0, 3000, 0), (0, 0, 0), "clamp").gradient(g, (1, 1, 1, 1), backend=backend)
    assert dx.item() == np.float16(3001)


def test_bad_shapes() -> None:
    with pytest.raises(ShapeError, match="fill_values has 2 numbers; the padded image has 3 channels"):
        Pad((0, 0, 1), edge_mode="constant", fill_values=(1, 2)).forward(np.zeros((1, 1, 1, 2), F32))
    with pytest.raises(ShapeError, match=r"g has shape \(1, 1, 3, 1\);.* it must have shape \(1, 1, 4, 1\)"):
        Pad((0, 1, 0)).gradient(row(3), (1, 1, 3, 1))
