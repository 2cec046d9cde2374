"""Guarded memory: what is written where it must not be is found, and said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref.arguments.arrays import Array
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.guards import BAND, GuardedArray

SHAPE = (2, 3, 2, 5)
DTYPES = [np.dtype(name) for name in ("float16", "float32", "float64")]
VALUES = np.arange(1.0, 61).reshape(SHAPE)


def around(array: Array, before: int = 0, after: int = 0) -> Array:
    """The elements of an array, and some of its neighbours in memory."""
    address = array.__array_interface__["data"][0] - before * array.itemsize
    size = before + array.size + after
    interface: dict[str, Any] = {"data": (address, False), "shape": (size,), "typestr": array.dtype.str, "version": 3}
    return np.asarray(type("Memory", (), {"__array_interface__": interface})())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_outputs_start_as_nan(dtype: Any) -> None:
    output = GuardedArray("y", SHAPE, dtype)
    assert output.array.shape == SHAPE
    assert output.array.dtype == dtype
    assert output.array.flags.c_contiguous
    assert output.array.flags.aligned
    assert np.isnan(output.array).all()
    output.check()
    output.array[...] = VALUES
    output.check()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_neighbours_are_nan_too(dtype: Any) -> None:
    """Reading past the end of an input spoils the result."""
    source = GuardedArray("x", SHAPE, dtype, VALUES)
    memory = around(source.array, 3, 3)
    assert np.isnan(memory[:3]).all()
    assert np.isnan(memory[-3:]).all()
    assert np.array_equal(memory[3:-3], VALUES.ravel())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("distance", [1, 7])
def test_a_write_past_the_end(dtype: Any, distance: int) -> None:
    for guarded in (GuardedArray("y", SHAPE, dtype), GuardedArray("y", SHAPE, dtype, VALUES)):
        around(guarded.array, after=distance)[-1] = 0
        first = (distance - 1) * dtype.itemsize
        with pytest.raises(Mismatch, match=rf"bytes were written past the end of y, the first at \+{first}$"):
            guarded.check()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("distance", [1, 7])
def test_a_write_before_the_start(dtype: Any, distance: int) -> None:
    guarded = GuardedArray("y", SHAPE, dtype)
    around(guarded.array, before=distance)[0] = 0
    last = -(distance - 1) * dtype.itemsize - 1
    with pytest.raises(Mismatch, match=rf"bytes were written before y, the last at {last}$"):
        guarded.check()


def test_the_far_ends_of_the_bands_are_watched() -> None:
    for end in (0, -1):
        guarded = GuardedArray("y", SHAPE, np.dtype("float32"))
        count = BAND // 4
        around(guarded.array, count, count)[end] = 1
        with pytest.raises(Mismatch, match="bytes were written"):
            guarded.check()


def test_a_changed_input() -> None:
    for index in [(0, 0, 0, 0), (1, 2, 1, 4)]:
        source = GuardedArray("x", SHAPE, np.dtype("float32"), VALUES)
        source.check()
        source.array[index] += 1
        with pytest.raises(Mismatch, match=r"^the input x was changed$"):
            source.check()


def test_inputs_are_compared_bit_by_bit() -> None:
    values = VALUES.astype(np.float32)
    values[0, 0, 0, :2] = np.nan, 0
    source = GuardedArray("x", SHAPE, np.dtype("float32"), values)
    source.check()  # NaN is not a change
    source.array[0, 0, 0, 1] = -0.0
    with pytest.raises(Mismatch, match="was changed"):
        source.check()


def test_the_callers_values_are_copied() -> None:
    values = VALUES.copy()
    source = GuardedArray("x", SHAPE, np.dtype("float64"), values)
    source.array[...] = 0
    assert np.array_equal(values, VALUES)
