"""The metalcompute runtime: on the fake package everywhere, and on the GPU of a Mac with Apple silicon."""

from __future__ import annotations

import array
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import anymetal_fixtures
from anymetal import CompileError, LaunchError, metalcompute
from anymetal.cuda import ptx
from shared import python

SCALE = """
#include <metal_stdlib>
using namespace metal;

struct Parameters { uint count; float factor; };

kernel void scale(device const float *x [[buffer(0)]],
                  device float *y [[buffer(1)]],
                  constant Parameters &p [[buffer(2)]],
                  uint i [[thread_position_in_grid]])
{
    if (i < p.count) y[i] = p.factor * x[i];
}

kernel void copy_half(device const half *x [[buffer(0)]],
                      device half *y [[buffer(1)]],
                      constant Parameters &p [[buffer(2)]],
                      uint i [[thread_position_in_grid]])
{
    if (i < p.count) y[i] = x[i];
}
"""

HALVE = """
#include <metal_stdlib>
using namespace metal;

kernel void halve(device const float *x [[buffer(0)]],
                  device float *y [[buffer(1)]],
                  constant uint &n [[buffer(2)]],
                  uint i [[thread_position_in_grid]])
{
    if (i < n) y[i] = 0.5f * x[i];
}
"""

X = np.linspace(-3, 3, 100, dtype=np.float32)


def parameters(count: int, factor: float) -> np.ndarray:
    return np.array([(count, factor)], np.dtype([("count", "u4"), ("factor", "f4")]))


def scaled(device: metalcompute.Device, x: Any, factor: float, *, count: int = X.size) -> np.ndarray:
    y = device.buffer(np.full_like(X, np.nan))
    function = device.kernel(SCALE).function("scale")
    function(count, x, y, parameters(count, factor))
    return np.frombuffer(y, np.float32).copy()


@pytest.fixture
def scale(fake: ModuleType) -> metalcompute.Function:
    """A function on the fake, whose arguments the tests below get wrong."""
    return metalcompute.Device().kernel(SCALE).function("scale")


# What it does, on the fake and on a real GPU


def test_runs_a_kernel_over_buffers(device: metalcompute.Device) -> None:
    assert scaled(device, X, 2).tolist() == (2 * X).tolist()


@pytest.mark.parametrize(
    "memory",
    [X.tobytes(), bytearray(X), X.data, array.array("f", X.tolist()), X.reshape(1, 10, 10)],
    ids=lambda memory: type(memory).__name__,
)
def test_takes_any_contiguous_memory(device: metalcompute.Device, memory: Any) -> None:
    assert scaled(device, memory, -1).tolist() == (-X).tolist()


def test_takes_its_own_buffers_and_leaves_inputs_alone(device: metalcompute.Device) -> None:
    x = device.buffer(X.nbytes)
    np.frombuffer(x, np.float32)[:] = X
    assert scaled(device, x, 4).tolist() == (4 * X).tolist()
    assert np.frombuffer(x, np.float32).tolist() == X.tolist()
    frozen = X.copy()
    frozen.flags.writeable = False
    assert scaled(device, frozen, 4).tolist() == (4 * X).tolist()


def test_writes_what_the_kernel_writes_and_nothing_else(device: metalcompute.Device) -> None:
    y = scaled(device, X, 2, count=60)
    assert y[:60].tolist() == (2 * X[:60]).tolist()
    assert np.isnan(y[60:]).all()


def test_new_buffers_are_zero(device: metalcompute.Device) -> None:
    assert bytes(memoryview(device.buffer(5))) == bytes(5)


def test_half(device: metalcompute.Device) -> None:
    x = X.astype(np.float16)
    y = device.buffer(x.nbytes)
    device.kernel(SCALE).function("copy_half")(np.int64(x.size), x, y, parameters(x.size, 1))
    assert np.frombuffer(y, np.float16).tolist() == x.tolist()


def test_a_numpy_scalar_is_an_argument(device: metalcompute.Device) -> None:
    y = device.buffer(X.nbytes)
    device.kernel(HALVE).function("halve")(X.size, X, y, np.uint32(X.size))
    assert np.frombuffer(y, np.float32).tolist() == (X / 2).tolist()


def test_a_buffer_can_start_as_a_copy(device: metalcompute.Device) -> None:
    x = X.copy()
    buffer = device.buffer(x)
    x[:] = 0
    assert np.frombuffer(buffer, np.float32).tolist() == X.tolist()


def test_compile_errors(device: metalcompute.Device) -> None:
    with pytest.raises(CompileError, match="undeclared identifier 'missing'") as caught:
        device.kernel(SCALE.replace("p.factor", "missing"))
    assert isinstance(caught.value, ValueError)


def test_unknown_function(device: metalcompute.Device) -> None:
    with pytest.raises(LaunchError, match="name='shrink': no kernel function"):
        device.kernel(SCALE).function("shrink")


def test_names_the_gpu(device: metalcompute.Device) -> None:
    assert str(device).startswith("metalcompute.Device(")


# What it refuses before the package sees it


@pytest.mark.parametrize(
    ("argument", "kind", "message"),
    [
        (4, TypeError, r"buffer\(0\) of scale exports no memory: 4, of type int; .* structured array"),
        (True, TypeError, "exports no memory: True, of type bool"),
        (1.5, TypeError, "exports no memory: 1.5, of type float"),
        (None, TypeError, "of type NoneType"),
        ("12", TypeError, "no memory: '12', of type str"),
        ([1.0, 2.0], TypeError, "of type list"),
        (np.zeros(2, "M8[s]"), TypeError, "of type ndarray"),
        (X[::2], LaunchError, "not C-contiguous; use numpy.ascontiguousarray"),
        (np.asfortranarray(np.ones((2, 3), np.float32)), LaunchError, "not C-contiguous"),
        (np.zeros((0, 3), np.float32), LaunchError, "is empty"),
        (b"", LaunchError, "is empty"),
    ],
    ids=str,
)
def test_refuses_arguments(
    fake: ModuleType, scale: metalcompute.Function, argument: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        scale(4, argument, X, X)
    assert "launch" not in fake.history


@pytest.mark.parametrize(
    ("count", "kind"),
    [(0, LaunchError), (-1, LaunchError), (2**32, LaunchError), (2.0, TypeError), (True, TypeError), ("4", TypeError)],
)
def test_refuses_counts(fake: ModuleType, scale: metalcompute.Function, count: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"count.* number of threads"):
        scale(count, X)
    assert "launch" not in fake.history


@pytest.mark.parametrize("number", [0, 32])
def test_refuses_too_few_and_too_many_buffers(scale: metalcompute.Function, number: int) -> None:
    with pytest.raises(LaunchError, match=f"got {number} buffers; Metal takes 1 to 31"):
        scale(4, *[X] * number)


@pytest.mark.parametrize(
    ("length", "kind", "message"),
    [
        (0, LaunchError, "length=0: a size in bytes"),
        (-4, LaunchError, "length=-4: a size in bytes"),
        (2**63, LaunchError, "a size in bytes"),
        (True, TypeError, "length is a size in bytes"),
        (4.0, TypeError, "data exports no memory: 4.0, of type float"),
        (np.int64(400), TypeError, r"both a number and 8 bytes of memory; pass int\(n\)"),
        (X[::2], LaunchError, "data is not C-contiguous"),
        (b"", LaunchError, "data is empty"),
    ],
    ids=str,
)
def test_refuses_lengths_and_data(fake: ModuleType, length: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        metalcompute.Device().buffer(length)


def test_refuses_what_the_device_cannot_allocate(fake: ModuleType) -> None:
    with pytest.raises(LaunchError, match=f"cannot allocate {2**62} bytes: Could not make buffer"):
        metalcompute.Device().buffer(2**62)


def test_refuses_source_and_name_that_are_not_text(fake: ModuleType) -> None:
    with pytest.raises(TypeError, match="source is MSL text"):
        metalcompute.Device().kernel(SCALE.encode())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name is the name of a kernel function"):
        metalcompute.Device().kernel(SCALE).function(None)  # type: ignore[arg-type]


def test_reports_a_launch_that_the_package_refuses(
    fake: ModuleType, scale: metalcompute.Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise fake.error("Cannot create command buffer")

    monkeypatch.setattr(scale, "_native", refuse)
    with pytest.raises(LaunchError, match="did not accept a launch of scale: Cannot create command buffer"):
        scale(4, X, X, parameters(4, 1))


TILE = """
kernel void tiled(device float *y [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
    threadgroup float tile[16384];
    tile[i] = i;
    y[i] = tile[i];
}"""
BEYOND = {
    "memory": (TILE, r"kernel `tiled` has 65536 bytes of threadgroup memory; the maximum is 32768: use smaller arrays"),
    "macro": (
        TILE.replace("threadgroup float", "JOIN(thread, group) float").replace(
            "kernel", "#define JOIN(a, b) a##b\nkernel"
        ),
        "kernel `tiled` has 65536 bytes",
    ),
    "parameter": (
        TILE.replace("threadgroup float tile[16384];", "").replace(
            "uint i", "threadgroup float *tile [[threadgroup(0)]], uint i"
        ),
        "kernel `tiled` has threadgroup memory as a parameter, which metalcompute cannot bind; use the clang runtime",
    ),
    "texture": (
        """#include <metal_stdlib>
using namespace metal;
kernel void tiled(texture2d<float> x, device float *y) { y[0] = x.read(uint2(0)).x; }""",
        "kernel `tiled` has textures or samplers, which metalcompute cannot bind; use the clang runtime",
    ),
    "sampler": (
        """#include <metal_stdlib>
using namespace metal;
struct Layer { sampler s; };
kernel void tiled(constant Layer &layer, device float *y, uint i [[thread_position_in_grid]]) { y[i] = 1; }""",
        "kernel `tiled` has textures or samplers, which metalcompute cannot bind; use the clang runtime",
    ),
    "few threads": (
        f"[[max_total_threads_per_threadgroup(16)]] {TILE.replace('16384', '16')}",
        r"kernel `tiled` has max_total_threads_per_threadgroup\(16\); legal values are the multiples of 32 from 32",
    ),
    "many threads": (
        f"[[max_total_threads_per_threadgroup(2048)]] {TILE.replace('16384', '16')}",
        r"kernel `tiled` has max_total_threads_per_threadgroup\(2048\); a threadgroup has 1 to 1024 threads: name",
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_refuses_what_no_pipeline_can_have(fake: ModuleType, name: str) -> None:
    """The package drops an encoder that has not ended, and Metal ends the process."""
    source, message = BEYOND[name]
    with pytest.raises(LaunchError, match=message):
        metalcompute.Device().kernel(source).function("tiled")
    assert "launch" not in fake.history


def test_without_a_clang_nothing_knows_what_a_pipeline_needs(fake: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metalcompute.clang, "unavailable", lambda: "no clang found")
    function = metalcompute.Device().kernel(TILE).function("tiled")
    with pytest.raises(fake.Abort):
        function(4, X)


def test_counts_launches(fake: ModuleType) -> None:
    before = metalcompute.launches()
    scaled(metalcompute.Device(), X, 2)
    scaled(metalcompute.Device(), X, 2)
    assert metalcompute.launches() == before + 2


# How it uses the package


def test_compiles_once_and_opens_one_device(fake: ModuleType) -> None:
    for _ in range(3):
        scaled(metalcompute.Device(), X, 2)
    assert fake.history.count("device") == 1
    assert fake.history.count("compile") == 1
    assert fake.history.count("function") == 1
    assert fake.history.count("pipeline") == 3


def test_one_launch_at_a_time_and_each_is_waited_for(fake: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(list[str]):
        """Gives the other threads time to get in between a launch and its end."""

        def append(self, event: str) -> None:
            super().append(event)
            time.sleep(0.002)

    monkeypatch.setattr(fake, "history", Slow())
    device = metalcompute.Device()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda factor: scaled(device, X, factor), range(12)))
    for factor, result in enumerate(results):
        assert result.tolist() == (factor * X).tolist()
    events = [event for event in fake.history if event in ("launch", "wait")]
    assert events == ["launch", "wait"] * 12


def test_the_package_does_not_try_to_read_a_number_from_an_argument(device: metalcompute.Device) -> None:
    attempts = []

    class Input(bytearray):
        def __int__(self) -> int:
            attempts.append(self)
            return 0

    assert scaled(device, Input(X), 2).tolist() == (2 * X).tolist()
    assert not attempts


def test_importing_it_does_not_import_the_package() -> None:
    code = "import sys, anymetal.metalcompute; assert 'metalcompute' not in sys.modules"
    assert python(code).returncode == 0


# Where it is not available


def test_elsewhere_it_says_what_it_needs(fake: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert metalcompute.unavailable() is None
    monkeypatch.setattr(metalcompute, "_machine", lambda: "linux x86_64")
    reason = metalcompute.unavailable()
    assert reason is not None
    assert reason.startswith("the metal runtime needs macOS on Apple silicon, and this is linux x86_64; ")
    assert 'runtime="clang"' in reason
    with pytest.raises(LaunchError, match="needs macOS on Apple silicon"):
        metalcompute.Device()


def test_without_the_package_it_says_how_to_get_it(fake: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "metalcompute", None)
    reason = metalcompute.unavailable()
    assert reason is not None
    assert "`pip install metalcompute`" in reason
    assert 'runtime="clang"' in reason


def test_without_a_gpu_it_says_so(fake: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "device_names", [])
    with pytest.raises(LaunchError, match=r'no Metal device .* runtime="clang"'):
        metalcompute.Device()


@pytest.mark.parametrize(
    ("promise", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)], ids=["skip", "fail"]
)
def test_what_is_promised_must_be_there(
    monkeypatch: pytest.MonkeyPatch, promise: str, outcome: type[BaseException]
) -> None:
    for name in ("METAL", "PTX"):
        monkeypatch.setenv(f"ANYMETAL_REQUIRE_{name}", promise)
    anymetal_fixtures.demand_apple_gpu(None)
    with pytest.raises((pytest.skip.Exception, pytest.fail.Exception), match="no GPU here") as caught:
        anymetal_fixtures.demand_apple_gpu("no GPU here")
    assert caught.type is outcome
    monkeypatch.setattr(ptx, "libdevice", lambda: None)
    with pytest.raises((pytest.skip.Exception, pytest.fail.Exception), match="nvidia-nvvm") as caught:
        anymetal_fixtures.demand_ptx()
    assert caught.type is outcome


def test_options_and_exact_grids_of_the_clang_runtime_are_refused(fake: ModuleType) -> None:
    device = metalcompute.Device()
    kernel = device.kernel(HALVE, version="2.3", include=(), fast_math=True)
    with pytest.raises(LaunchError, match="halve: metalcompute has no exact grids"):
        kernel.function("halve").dispatch(64, X)
    with pytest.raises(CompileError, match=r"version='3\.0'.*metalcompute compiles MSL 2\.3"):
        device.kernel(HALVE, version="3.0")
    with pytest.raises(CompileError, match="metalcompute compiles"):
        device.kernel(HALVE, include=["/"])
    with pytest.raises(CompileError, match="metalcompute compiles"):
        device.kernel(HALVE, fast_math=False)
