"""Concatenation: the gaps that MPS leaves, slices of the gradient, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import Concatenation, ShapeError
from mpsref.arguments.arrays import Array

F32 = np.float32


def pixel(*channels: float) -> Array:
    return np.array(channels, F32).reshape(1, 1, 1, -1)


def test_sources_are_padded_to_a_multiple_of_four(backend: str) -> None:
    y = Concatenation().forward([pixel(1, 2, 3), pixel(4, 5, 6, 7, 8)], backend=backend)
    assert y.ravel().tolist() == [1, 2, 3, 0, 4, 5, 6, 7, 8, 0, 0, 0]
    g = pixel(*range(1, 13))
    slices = Concatenation().gradient(g, [(1, 1, 1, 3), pixel(0, 0, 0, 0, 0)], backend=backend)
    assert [dx.ravel().tolist() for dx in slices] == [[1, 2, 3], [5, 6, 7, 8, 9]]


def test_tight(backend: str) -> None:
    tight = Concatenation(channel_alignment=1)
    assert tight.forward([pixel(1, 2, 3), pixel(4, 5)], backend=backend).ravel().tolist() == [1, 2, 3, 4, 5]
    slices = tight.gradient(pixel(1, 2, 3, 4, 5), [(1, 1, 1, 3), (1, 1, 1, 2)], backend=backend)
    assert [dx.ravel().tolist() for dx in slices] == [[1, 2, 3], [4, 5]]


def test_channel_counts_that_public_programs_record(backend: str) -> None:
    one = Concatenation().forward([pixel(1), pixel(2)], backend=backend)
    assert one.ravel().tolist() == [1, 0, 0, 0, 2, 0, 0, 0]
    many = Concatenation().forward([np.ones((1, 3, 5, 7), F32), np.full((1, 3, 5, 11), 2, F32)], backend=backend)
    assert many.shape == (1, 3, 5, 20)
    assert (many[..., [7, 19]] == 0).all()


def test_the_same_image_twice_gets_two_slices(backend: str) -> None:
    x = pixel(1, 2)
    first, second = Concatenation(1).gradient(Concatenation(1).forward([x, x]) * 3, [x, x], backend=backend)
    assert first.ravel().tolist() == second.ravel().tolist() == [3, 6]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("alignment", [1, 24])
def test_runs_of_all_lengths_write_nothing_else(dtype: str, alignment: int) -> None:
    spec, shape = Concatenation(alignment), (2, 3, 37)
    channels = [1, 7, 8, 9, 15, 16, 17, 31, 33, 1023, 1024, 1025, 2047, 2049]
    xs = [np.random.default_rng(c).standard_normal((*shape, c)).astype(dtype) for c in channels]
    xs[3].flags.writeable = False
    y = spec.forward(xs, backend="cpu")
    memory = np.full(y.size + 128, 1 / 3, dtype)
    spec.forward(xs, out=memory[64:-64].reshape(y.shape), backend="cpu")
    padded = [np.pad(x, [(0, 0), (0, 0), (0, 0), (0, -x.shape[3] % alignment)]) for x in xs]
    np.testing.assert_array_equal(y, np.concatenate(padded, 3))
    np.testing.assert_array_equal(memory, np.pad(y.ravel(), 64, constant_values=1 / 3))
    for dx, x in zip(spec.gradient(y, xs, backend="cpu"), xs, strict=True):
        np.testing.assert_array_equal(dx, x)


def bad(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_bad_input() -> None:
    spec, x = Concatenation(), pixel(1, 2)
    bad(lambda: Concatenation(0), ValueError, "channel_alignment is 0")
    bad(lambda: Concatenation(4.0), TypeError, "channel_alignment is 4.0")  # type: ignore[arg-type]
    bad(lambda: spec.forward([]), ValueError, "no images to concatenate")
    bad(lambda: spec.forward(x), TypeError, "xs is of type ndarray; it must be a list or tuple")
    bad(lambda: spec.forward([x, x[0]]), ShapeError, r"x\[1\] has shape .* rank 3")
    bad(
        lambda: spec.forward([x, np.zeros((1, 2, 1, 2), F32)]),
        ShapeError,
        r"on axis H x\[0\] has length 1 and x\[1\] 2",
    )
    bad(lambda: spec.forward([x, np.zeros((2, 1, 1, 2), F32)]), ShapeError, "on axis N")
    bad(lambda: spec.gradient(x, [x]), ShapeError, r"g has shape \(1, 1, 1, 2\).*\(1, 1, 1, 4\).*multiple of 4")
    bad(lambda: spec.gradient(pixel(1, 2, 3, 4), [x, x]), ShapeError, r"has \(1, 1, 1, 8\)")
    bad(lambda: spec.gradient(pixel(1, 2, 3, 4), [x], out=(x, x)), TypeError, "out has 2 arrays")
