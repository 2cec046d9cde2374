"""Fixtures, also for tests of backends: an empty cache, and packages of GPUs, fakes or real where there is a GPU."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fake_cuda_core
import fake_metalcompute
from anymetal import disk_cache, metalcompute
from anymetal.cuda import device as cuda_device
from anymetal.cuda import driver, ptx
from anymetal.frontend import toolchain

# Before PyTorch is loaded, and for processes that tests start: where several processes share the cores, threads that
# spin while they wait double the processor time.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

gc.set_threshold(20_000, 20, 50)  # by default, collections take an eighth of the time: modules and tests stay


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Let Ctrl-C reach the processes that tests start, also if this one is in the background of a shell."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def rare_collections() -> None:
    """Collect no garbage among modules and tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache of compiled code, as a new process sees it."""
    for name in ("ANYMETAL_CACHE_DIR", "MPSREF_CACHE_DIR"):  # that of backends in numba
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    monkeypatch.setattr(disk_cache, "_warned", set())
    disk_cache._checked.cache_clear()
    disk_cache._remove_old.cache_clear()
    disk_cache._occupied.cache_clear()
    return tmp_path / "cache"


def demand_apple_gpu(reason: str | None) -> None:
    """Skip with the reason why there is no Apple GPU, or fail where ANYMETAL_REQUIRE_METAL=1 promises one."""
    demand(reason, "ANYMETAL_REQUIRE_METAL")


def demand_ptx() -> None:
    """Skip if kernels cannot be compiled for NVIDIA GPUs here, or fail where ANYMETAL_REQUIRE_PTX=1 promises it."""
    can = toolchain.missing() is None and ptx.libdevice() is not None
    demand(None if can else "no clang or no libdevice.10.bc: pip install ziglang nvidia-nvvm", "ANYMETAL_REQUIRE_PTX")


def demand(reason: str | None, promise: str) -> None:
    """Skip a test for a reason, or fail where the environment variable ``promise`` is 1."""
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
        demand(driver.unavailable(), "ANYMETAL_REQUIRE_CUDA")


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
    demand_ptx()

    def compile_kernel(compiler: Any, library: Any, program: Any, kernel: Any, *rest: Any) -> Any:
        compiled = ptx.compile_kernel(compiler, library, program, kernel, *rest)
        for text in (compiled.text, compiled.relaxed):
            fake_cuda_core.sources[text] = program.text, kernel.name, rest[-1]
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
