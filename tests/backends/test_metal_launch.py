"""Limits of a launch, and the sums of MSL that every family shares."""

import sys

import numpy as np
import pytest

import mpsref
from anymetal.clang import device
from mpsref.registry import get_backend
from mpsref_metal import launch


def test_the_most_threads_of_a_launch():
    assert launch._checked(5, 2**32 - 2**12) == 5
    with pytest.raises(mpsref.UnsupportedError, match="a launch has at most 4294963200"):
        launch._checked(5, 2**32 - 2**12 + 1)


@pytest.mark.skipif(get_backend("metal:clang").unavailable() is not None, reason="there is no clang")
def test_long_sums_are_sums_of_blocks():
    """Added one by one, each 1 would be lost next to 2**24."""
    x = np.ones((1, 1, 1, 4096), np.float32)
    x[..., 0] = 2.0**24
    (total,) = mpsref.Reduce("sum", "featurechannels").forward(x, backend="metal:clang").ravel()
    assert total >= 2**24 + 2048


IMAGE, WEIGHTS = np.ones((1, 8, 8, 4), np.float32), np.ones((4, 3, 3, 4), np.float32)


@pytest.mark.skipif(get_backend("metal:clang").unavailable() is not None, reason="there is no clang")
@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        (mpsref.PoolingAverage(3).forward, [IMAGE]),
        (mpsref.PoolingAverage(3).gradient, [IMAGE, IMAGE.shape]),
        (mpsref.PoolingMax(3).forward, [IMAGE]),
        (mpsref.Neuron("relu").forward, [IMAGE]),
        (mpsref.UpsamplingNearest(2).forward, [IMAGE]),
        (mpsref.Convolution(3).forward, [IMAGE, WEIGHTS]),
    ],
)
def test_repeated_calls_copy_images_alone_and_make_few_calls(method, arguments, monkeypatch):
    """Tables are in the memory of the device, which makes buffers of images and weights, and for results."""
    first = method(*arguments, backend="metal:clang")
    made, calls, before = [], [], device.Device.buffer
    monkeypatch.setattr(device.Device, "buffer", lambda self, given: made.append(given) or before(self, given))
    method(*arguments, backend="metal:clang")
    assert all(isinstance(one, int) or one.ndim == 4 for one in made)
    monkeypatch.undo()
    old = sys.getprofile()
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code) if event == "call" else None)
    try:
        again = method(*arguments, backend="metal:clang")
    finally:
        sys.setprofile(old)
    np.testing.assert_array_equal(again, first)
    assert len(calls) <= 125, len(calls)  # 273 for an average, when each call copied its tables


@pytest.mark.skipif(get_backend("metal:clang").unavailable() is not None, reason="there is no clang")
def test_tables_may_be_any_arrays(monkeypatch):
    """A backend of one's own passes them as in the page on adding a kernel."""
    expected, gather = mpsref.UpsamplingNearest(2).forward(IMAGE), launch.Launcher.__call__

    def of_a_list(self, files, function, images, tables, *others, **named):
        gather(self, files, function, images, list(tables), *others, **named)

    monkeypatch.setattr(launch.Launcher, "__call__", of_a_list)
    np.testing.assert_array_equal(mpsref.UpsamplingNearest(2).forward(IMAGE, backend="metal:clang"), expected)
    x = np.arange(64, dtype=np.float32).reshape(1, 4, 4, 4)
    pool = mpsref.PoolingAverage(2, 2)
    np.testing.assert_array_equal(pool.forward(x, backend="metal:clang"), pool.forward(x))
