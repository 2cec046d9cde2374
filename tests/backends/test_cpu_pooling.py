"""Pooling on the cpu backend: how images are cut, where that could show."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mpsref import PoolingAverage, PoolingL2Norm, PoolingMax
from mpsref.kernels.pooling import Pooling
from mpsref_cpu import backend, threads
from mpsref_cpu.pooling import windows


def test_no_chunk_of_the_channels_is_narrower_than_a_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its channels would be computed one by one."""
    for number, channels, multiple in itertools.product((1, 2, 3, 7, 50), range(1, 400), (windows.VECTOR, 32)):
        monkeypatch.setattr(threads, "thread_count", lambda count=number: count)
        width = windows.chunk_width(1, channels, 1 << 30, 4096, multiple)
        assert 0 < width <= channels
        assert width == channels or channels % width == 0 or channels % width >= windows.VECTOR


@pytest.mark.parametrize("channels", [7, 100, 161])
@pytest.mark.parametrize("kernel", [2, 3, 5])
def test_chunks_of_the_channels_have_the_bits_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, channels: int, kernel: int
) -> None:
    monkeypatch.setattr(threads, "GRAIN", 1)
    generator = np.random.default_rng(channels)
    x = generator.integers(-2, 3, (1, 6, 6, channels)).astype(np.float32)
    g = np.copysign(generator.integers(0, 2, x.shape), generator.choice([-1, 1], x.shape)).astype(np.float32)
    results = []
    for number in (1, 3, 50):
        monkeypatch.setattr(threads, "thread_count", lambda count=number: count)
        results.append(PoolingMax(kernel, 1, 1, "clamp").gradient(g, x, backend=backend).tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("kind", [PoolingAverage, PoolingL2Norm, PoolingMax])
def test_no_pixel_of_the_gradient_has_a_window_in_the_image(kind: type[Pooling]) -> None:
    g, x = np.ones((1, 1, 3, 1), np.float32), np.ones((1, 1, 1, 1), np.float32)
    assert kind(1, offset=1).gradient(g, x, backend=backend).tolist() == [[[[0]]]]
