"""Softmax on the cpu backend: the same bits for any number of threads, whole blocks and rests of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import LogSoftMax, SoftMax
from mpsref_cpu import threads

SHAPES = [(3, 41, 43, 21), (1, 700, 1, 1000), (2, 97, 89, 3), (1, 3, 1, 100_001), (5, 11, 13, 64), (1, 2, 2, 2048)]


@pytest.mark.parametrize("kernel", [SoftMax(), LogSoftMax()], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_bits_do_not_depend_on_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, kernel: Any, shape: tuple[int, ...], dtype: str
) -> None:
    monkeypatch.setattr(threads, "GRAIN", 1)
    rng = np.random.default_rng(1)
    x, g = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    results = []
    for count in (1, 2, 3, 7):
        monkeypatch.setattr(threads, "thread_count", lambda count=count: count)
        y = kernel.forward(x, backend="cpu")
        results.append((y.tobytes(), kernel.gradient(g, y, backend="cpu").tobytes()))
    assert all(one == results[0] for one in results)


@pytest.mark.parametrize("channels", [1, 2, 7, 8, 21, 33, 2047, 2049])
def test_pixels_do_not_influence_each_other(channels: int) -> None:
    """A pixel of NaN beside one of numbers, in every place of a block."""
    x = np.random.default_rng(2).standard_normal((1, 1, 9, channels)).astype(np.float32)
    for kernel in (SoftMax(), LogSoftMax()):
        clean = kernel.forward(x, backend="cpu")
        for place in range(9):
            spoiled = x.copy()
            spoiled[0, 0, place] = np.nan
            y = kernel.forward(spoiled, backend="cpu")
            assert np.isnan(y[0, 0, place]).all()
            np.testing.assert_array_equal(np.delete(y, place, 2), np.delete(clean, place, 2))


@pytest.mark.parametrize("channels", [1, 2, 7, 8, 21, 33, 2047, 2049])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gradients_of_pixels_do_not_influence_each_other(channels: int, dtype: str) -> None:
    """A pixel of NaN beside others, also the last one, beyond which there is no memory."""
    rng = np.random.default_rng(3)
    g, y = (rng.standard_normal((1, 1, 9, channels)).astype(dtype) for _ in range(2))
    for kernel in (SoftMax(), LogSoftMax()):
        clean = kernel.gradient(g, y, backend="cpu")
        np.testing.assert_allclose(clean, kernel.gradient(g, y, backend="reference"), rtol=1e-2, atol=1e-3 * channels)
        for place in range(9):
            spoiled = g.copy()
            spoiled[0, 0, place] = np.nan
            dx = kernel.gradient(spoiled, y, backend="cpu")
            assert np.isnan(dx[0, 0, place]).all()
            np.testing.assert_array_equal(np.delete(dx, place, 2), np.delete(clean, place, 2))
