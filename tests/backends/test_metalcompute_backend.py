"""The metal backend as a whole, over the fake package and over a real Apple GPU."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import mpsref
import mpsref_metal
from anymetal import metalcompute

POOL = mpsref.PoolingAverage(kernel_size=(2, 2), strides=(2, 1), offset=(1, 0), edge_mode="clamp")


@pytest.fixture
def metal(package: ModuleType) -> mpsref.Backend:
    """A backend of its own, so that the device of the fake does not stay behind in the installed one."""
    return mpsref_metal.backend_on("metal", metalcompute)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_agrees_where_the_answer_is_exact(metal: mpsref.Backend, dtype: str) -> None:
    """Small integers, and windows of 1, 2 or 4 pixels: no rounding anywhere."""
    random = np.random.default_rng(0)
    x = random.integers(-8, 8, (2, 9, 7, 3)).astype(dtype)
    y = POOL.forward(x, output_size=(3, 6))
    g = random.integers(-8, 8, y.shape).astype(dtype)
    assert POOL.forward(x, output_size=(3, 6), backend=metal).tolist() == y.tolist()
    dx = POOL.gradient(g, x.shape)
    assert np.abs(dx).max() > 1
    assert POOL.gradient(g, x.shape, backend=metal).tolist() == dx.tolist()


def test_names_its_device(metal: mpsref.Backend, package: ModuleType) -> None:
    assert metal.unavailable() is None
    assert metal.device() == f"metalcompute.Device({package.get_devices()[0].deviceName})"


def test_a_process_is_worn_after_many_launches(metal: mpsref.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package searches all launches of the process at the end of each; see anymetal.metalcompute."""
    before = metalcompute.launches()
    POOL.forward(np.ones((1, 4, 4, 1), np.float32), backend=metal)
    monkeypatch.setattr(mpsref_metal, "MOST_LAUNCHES", before + 1)
    assert not metal.is_worn()
    POOL.forward(np.ones((1, 4, 4, 1), np.float32), backend=metal)
    assert metal.is_worn()
    assert not mpsref_metal.clang.is_worn()


def test_elsewhere_it_names_the_backend_that_runs(fake: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metalcompute, "_machine", lambda: "linux x86_64")
    with pytest.raises(mpsref.UnsupportedError, match=r'needs macOS on Apple silicon.*backend="metal:clang"'):
        POOL.forward(np.ones((1, 4, 4, 1), np.float32), backend=mpsref_metal.metal)
