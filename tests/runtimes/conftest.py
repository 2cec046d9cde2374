"""Fixtures for the metalcompute runtime: the fake package, and the real one where there is an Apple GPU."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

import pytest

from mpsref_metal.runtimes import metalcompute
from tests import fake_metalcompute


def demand_apple_gpu(reason: str | None) -> None:
    """Skip with the reason why there is no Apple GPU, or fail where MPSREF_REQUIRE_METAL=1 promises one."""
    if reason is None:
        return
    if os.environ.get("MPSREF_REQUIRE_METAL") == "1":
        pytest.fail(f"MPSREF_REQUIRE_METAL=1, but {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("apple") is not None:
        demand_apple_gpu(metalcompute.unavailable())


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The fake package in the place of the real one, on what claims to be a Mac, as in a fresh process."""
    monkeypatch.setitem(sys.modules, "metalcompute", fake_metalcompute)
    monkeypatch.setattr(metalcompute, "_machine", lambda: "darwin arm64")
    for cached in (metalcompute._open, metalcompute._buffer_type, metalcompute._compile, metalcompute._link):
        cached.cache_clear()
    fake_metalcompute.history.clear()
    return fake_metalcompute


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.apple)])
def package(request: pytest.FixtureRequest) -> ModuleType:
    """The fake, and on a Mac the real package too: there the fake's claims are checked against the truth."""
    if request.param == "fake":
        request.getfixturevalue("fake")
    return importlib.import_module("metalcompute")


@pytest.fixture
def device(package: ModuleType) -> metalcompute.Device:
    """The runtime's device on top of the fake and of the real package."""
    return metalcompute.Device()
