"""The values that cases compute on."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from mpsref import Compare, Dropout, PoolingMax
from mpsref.arguments.arrays import Array
from mpsref.conformance import data
from mpsref.conformance.data import DataFamily, values

FAMILIES: tuple[DataFamily, ...] = get_args(DataFamily)
DTYPES = ("float16", "float32", "float64")
SHAPES = [(2, 7, 6, 5), (1, 12, 12, 9), (3, 1, 5, 1)]


@pytest.fixture(params=[(f, d, s) for f in FAMILIES for d in DTYPES for s in (0, 1, 65535)], ids=str)
def words(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(zip(("family", "dtype", "seed"), request.param, strict=True))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shape_dtype_and_magnitude(words: dict[str, Any], shape: tuple[int, ...]) -> None:
    array = values(shape, **words)
    assert array.shape == shape
    assert array.dtype == words["dtype"]
    magnitude = np.abs(array.astype(np.float64))
    assert np.isfinite(magnitude).all()
    assert magnitude[magnitude > 0].min() >= 2.0**-30, "fast math may flush smaller numbers"
    assert words["family"] == "hard" or magnitude.all(), "zeros are for ties"
    assert magnitude.max() <= 2.0**13, "some sums of them fit in float16"


def test_values_come_again(words: dict[str, Any]) -> None:
    assert np.array_equal(values((2, 4, 4, 3), **words), values((2, 4, 4, 3), **words))


@pytest.mark.parametrize("family", FAMILIES)
def test_seeds_and_streams_give_others(family: DataFamily) -> None:
    arrays = [values((2, 4, 4, 5), "float64", family, seed, stream) for seed in (1, 2, 3) for stream in (0, 1)]
    arrays += [values((2, 4, 4, 5), "float64", family, 0)]
    for k, first in enumerate(arrays):
        for second in arrays[:k]:
            assert np.mean(first == second) < 0.5


def neighbours(array: Array) -> list[tuple[Array, Array]]:
    """Every pair of values next to each other on an axis other than the batch."""
    slices = [(np.s_[1:], np.s_[:-1])]
    return [(np.moveaxis(array, axis, 0)[a], np.moveaxis(array, axis, 0)[b]) for axis in (1, 2, 3) for a, b in slices]


@pytest.mark.parametrize("family", ["exact", "real"])
@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_neighbours_differ(family: DataFamily, seed: int, shape: tuple[int, ...]) -> None:
    """So a swapped axis, a shifted window or a gradient of ones cannot look right."""
    array = values(shape, "float32", family, seed)
    assert all((a != b).all() for a, b in neighbours(array))
    assert not (array == 1).all()


def test_exact_values_are_small_integers() -> None:
    for seed in range(5):
        array = values((2, 7, 6, 5), "float16", "exact", seed).astype(np.float64)
        assert np.array_equal(array, np.round(array))
        assert np.abs(array).max() <= 63
        assert (array != 0).all()
    assert (array < 0).any()
    assert (array > 0).any()


def test_sums_of_exact_values_are_exact_in_any_order() -> None:
    array = values((1, 64, 64, 1), "float32", "exact", 3).ravel()
    total = int(array.astype(np.int64).sum())
    for order in (array, array[::-1], np.sort(array), np.sort(array)[::-1]):
        assert int(np.cumsum(order, dtype=np.float32)[-1]) == total


def test_seed_0_counts_up() -> None:
    assert values((1, 2, 2, 1), "float32", "exact", 0).ravel().tolist() == [1, 2, 3, 4]
    real = values((1, 2, 2, 1), "float16", "real", 0).ravel()
    assert (np.diff(real.astype(np.float64)) > 0).all()


def test_hard_channels() -> None:
    """A large mean with a small deviation; tiny; constant; ties; cancellation."""
    array = values((2, 9, 9, 10), "float32", "hard", 5).astype(np.float64)
    for start in (0, 5):
        offset, tiny, constant, ties, cancelling = np.moveaxis(array[..., start : start + 5], -1, 0)
        assert np.abs(offset.mean()) > 100 * offset.std() > 0
        assert np.abs(tiny).max() < 2.0**-9
        assert np.ptp(constant) == 0
        assert np.unique(ties).size == 3
        assert 0 in ties
        assert np.abs(cancelling).min() > 3 * np.abs(cancelling.mean())


@pytest.mark.parametrize("dtype", DTYPES)
def test_nonfinite_inputs(dtype: str) -> None:
    """Channels in turn have few, many, and only negative infinities; the other values are those of "exact"."""
    problem = PoolingMax.problems["forward"](PoolingMax(3), (2, 9, 9, 6), (9, 9))
    (found,) = data.inputs(problem, dtype, "nonfinite", 9)
    assert found.dtype == dtype
    for start in (0, 3):
        few, many, negative = np.moveaxis(found[..., start : start + 3], -1, 0)
        assert 0.7 < np.isfinite(few).mean() < 0.95
        assert 0.3 < np.isfinite(many).mean() < 0.7
        for one in (few, many):
            assert np.isnan(one).any()
            assert np.isposinf(one).any()
            assert np.isneginf(one).any()
        assert np.isneginf(negative).mean() > 0.6
        assert not np.isnan(negative).any()
    assert set(found[np.isfinite(found)]) <= set(values((2, 9, 9, 6), dtype, "exact", 9).ravel())


def test_nonfinite_inputs_are_in_floats_alone() -> None:
    """A mask stays one; the operands of a comparison keep the infinities, which are out of range for finite values."""
    _, mask = data.inputs(Dropout.problems["forward"](Dropout(), (2, 3, 3, 5)), "float32", "nonfinite", 3)
    assert mask.dtype == np.uint8
    assert set(np.unique(mask)) <= {0, 1}
    operands = data.inputs(
        Compare.problems["forward"](Compare(), (2, 9, 9, 6), (2, 9, 9, 6)), "float32", "nonfinite", 3
    )
    assert all(np.isinf(operand).any() for operand in operands)
    assert (np.isinf(operands[0]) & (operands[0] == operands[1])).any(), "equal infinities"


@pytest.mark.parametrize("size", [data.PART - 1, 2 * data.PART + 3])
def test_parts_continue_one_sequence_of_random_values(size: int) -> None:
    """A seed gives the values that a single draw gives, so that a named case stays the same."""
    drawn = np.random.default_rng((5, 2, FAMILIES.index("real"))).standard_normal(size)
    expected = np.where(np.abs(drawn) < 2.0**-20, 2.0**-20, drawn).astype(np.float32)
    np.testing.assert_array_equal(values((1, 1, 1, size), "float32", "real", seed=5, stream=2).ravel(), expected)
