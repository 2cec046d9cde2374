"""Limits of a launch, and the sums of MSL that every family shares."""

import numpy as np
import pytest

import mpsref
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
