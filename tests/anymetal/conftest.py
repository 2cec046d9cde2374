"""Fixtures for the metalcompute and the cuda runtime: fake packages, and the real ones where there is such a GPU."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from anymetal import metalcompute
from anymetal.cuda import device as cuda_device
from anymetal.cuda import driver, ptx
from anymetal.frontend import toolchain
from tests.anymetal import fake_cuda_core, fake_metalcompute


def demand_apple_gpu(reason: str | None) -> None:
    """Skip with the reason why there is no Apple GPU, or fail where MPSREF_REQUIRE_METAL=1 promises one."""
    _demand(reason, "MPSREF_REQUIRE_METAL")


def _demand(reason: str | None, promise: str) -> None:
    if reason is None:
        return
    if os.environ.get(promise) == "1":
        pytest.fail(f"{promise}=1, but {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("apple") is not None:
        demand_apple_gpu(metalcompute.unavailable())
    if item.get_closest_marker("nvidia") is not None:
        _demand(driver.unavailable(), "MPSREF_REQUIRE_CUDA")


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


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The fake cuda.core in the place of the real one, as in a fresh process; clang and libdevice are real."""
    if toolchain.missing() is not None or ptx.libdevice() is None:
        pytest.skip("no clang or no libdevice.10.bc: pip install ziglang nvidia-nvvm")

    def compile_kernel(compiler: Any, library: Any, program: Any, kernel: Any, *rest: Any) -> Any:
        compiled = ptx.compile_kernel(compiler, library, program, kernel, *rest)
        fake_cuda_core.sources[compiled.text] = program.text, kernel.name, rest[-1]
        return compiled

    monkeypatch.setitem(sys.modules, "cuda.core", fake_cuda_core)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake_cuda_core.bindings)
    monkeypatch.setattr(cuda_device, "compile_kernel", compile_kernel)
    monkeypatch.setattr(cuda_device, "_contexts", {})
    monkeypatch.setattr(driver, "_process", {"used": False, "forked": False})
    cuda_device._opened.cache_clear()
    fake_cuda_core.reset()
    yield fake_cuda_core
    cuda_device._opened.cache_clear()
