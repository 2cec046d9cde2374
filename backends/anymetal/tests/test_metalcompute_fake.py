"""The fake of the package metalcompute is as strict as the package, and shows what it hides.

Tests with the fixture `package` also run against the real package where there is an Apple GPU, which checks
the fake itself. Those with `fake` are about what would abort the process or go unnoticed there.
"""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fake_metalcompute

ADD_ONE = """
#include <metal_stdlib>
using namespace metal;

kernel void add_one(device const float *x [[buffer(0)]],
                    device float *y [[buffer(1)]],
                    constant uint &n [[buffer(2)]],
                    uint i [[thread_position_in_grid]])
{
    if (i < n) y[i] = x[i] + 1.0f;
}
"""

GROUP_OF_64 = """
#include <metal_stdlib>
using namespace metal;

[[max_total_threads_per_threadgroup(64)]]
kernel void number(device int *y [[buffer(0)]], uint i [[thread_position_in_grid]])
{
    y[i] = int(i);
}
"""

FOUR = np.array([4], np.uint32)


def floats(buffer: Any) -> list[float]:
    return [float(value) for value in np.frombuffer(buffer, np.float32)]


def launch_add_one(device: Any, x: Any, y: Any) -> Any:
    return device.kernel(ADD_ONE).function("add_one")(4, x, y, FOUR)


def test_offers_the_names_of_the_package(package: ModuleType) -> None:
    public = {name for name in dir(package) if not name.startswith("_")}
    assert set(fake_metalcompute.__all__) <= public
    assert issubclass(package.error, Exception)
    assert not issubclass(package.error, (ValueError, TypeError, RuntimeError))


def test_devices(package: ModuleType) -> None:
    devices = package.get_devices()
    assert isinstance(devices, tuple)
    assert devices[0].hasUnifiedMemory is True
    assert devices[0].recommendedWorkingSetSize > 0
    assert str(package.Device()) == str(package.Device(-5)) == f"metalcompute.Device({devices[0].deviceName})"
    with pytest.raises(package.error, match=r"^Cannot create device$"):
        package.Device(len(devices))


def test_no_device(fake: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "device_names", [])
    assert fake.get_devices() == ()
    with pytest.raises(fake.error, match=r"^Cannot create device$"):
        fake.Device()


def test_a_bad_device_index_is_a_system_error(package: ModuleType) -> None:
    with pytest.raises(SystemError, match="returned a result with an exception set"):
        package.Device("0")


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((), TypeError, r"exactly 1 argument \(0 given\)"),
        ((b"kernel void f() {}",), TypeError, "argument 2 must be str, not bytes"),
        (("a\0b",), ValueError, "embedded null character"),
    ],
)
def test_source_is_one_str(
    package: ModuleType, arguments: tuple[Any, ...], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        package.Device().kernel(*arguments)


def test_compile_errors_carry_the_compilers_text(package: ModuleType) -> None:
    with pytest.raises(package.error, match="undeclared identifier 'unheard_of'"):
        package.Device().kernel(ADD_ONE.replace("x[i] + 1.0f", "unheard_of"))


def test_doubles_do_not_exist(package: ModuleType) -> None:
    with pytest.raises(package.error, match="double"):
        package.Device().kernel(ADD_ONE.replace("1.0f", "double(1)"))


def test_function_not_found(package: ModuleType) -> None:
    kernel = package.Device().kernel(ADD_ONE)
    with pytest.raises(package.error, match=r"^Function not found$"):
        kernel.function("add_two")
    with pytest.raises(TypeError, match="argument 2 must be str, not int"):
        kernel.function(1)


@pytest.mark.parametrize(
    ("source", "content"),
    [
        (16, bytes(16)),
        (True, bytes(1)),
        (3.7, bytes(3)),
        ("12", bytes(12)),
        (np.int64(400), b"\x90\x01" + bytes(6)),  # a NumPy scalar exports memory, and is not a length
        (b"12", b"12"),
        (np.array([[1, 2], [3, 4]], np.uint8), bytes([1, 2, 3, 4])),
    ],
)
def test_what_becomes_a_buffer(package: ModuleType, source: Any, content: bytes) -> None:
    buffer = package.Device().buffer(source)
    assert bytes(memoryview(buffer)) == content
    assert str(buffer) == f"metalcompute.Buffer(length={len(content)})"


def test_a_buffer_of_a_buffer_is_a_copy(package: ModuleType) -> None:
    device = package.Device()
    original = device.buffer(b"abc")
    copy = device.buffer(original)
    memoryview(original)[:] = b"xyz"
    assert bytes(copy) == b"abc"


@pytest.mark.parametrize("source", [None, "abc", [1, 2], np.zeros((4, 4))[:, 1]], ids=str)
def test_what_does_not_become_a_buffer(package: ModuleType, source: Any) -> None:
    with pytest.raises(package.error, match=r"^Unsupported input format$"):
        package.Device().buffer(source)


def test_empty_buffers_do_not_exist(package: ModuleType) -> None:
    for source in (0, b"", np.zeros(0)):
        with pytest.raises(package.error, match=r"^Could not make buffer$"):
            package.Device().buffer(source)


@pytest.mark.parametrize("length", [-1, 2**62])
def test_impossible_lengths(fake: ModuleType, length: int) -> None:
    with pytest.raises(fake.error, match=r"^Could not make buffer$"):
        fake.Device().buffer(length)


def test_a_buffer_exports_memory_and_nothing_else(package: ModuleType) -> None:
    buffer = package.Device().buffer(8)
    view = memoryview(buffer)
    assert (view.format, view.itemsize, view.shape, view.readonly) == ("B", 1, (8,), False)
    for attribute in ("nbytes", "length", "append", "decode", "tobytes"):
        assert not hasattr(buffer, attribute)
    for operation in (len, iter, list, lambda b: b[0], lambda b: b + b, lambda b: 0 in b, weakref.ref):
        with pytest.raises(TypeError):
            operation(buffer)
    assert buffer != package.Device().buffer(8), "buffers compare by identity"


def test_device_takes_no_attributes_and_no_subclasses(package: ModuleType) -> None:
    with pytest.raises(AttributeError):
        package.Device().cache = {}
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Mine", (package.Device,), {})


def test_results_appear_when_the_handle_is_dropped(package: ModuleType) -> None:
    device = package.Device()
    y = device.buffer(16)
    handle = launch_add_one(device, np.arange(4, dtype=np.float32), y)
    assert not [name for name in dir(handle) if not name.startswith("_")], "there is no other way to wait"
    del handle
    assert floats(y) == [1, 2, 3, 4]


def test_reading_early_shows_stale_data(fake: ModuleType) -> None:
    device = fake.Device()
    y = device.buffer(16)
    handle = launch_add_one(device, np.arange(4, dtype=np.float32), y)
    assert floats(y) == [0, 0, 0, 0]
    del handle
    assert floats(y) == [1, 2, 3, 4]


def test_the_queue_runs_in_order(package: ModuleType) -> None:
    device = package.Device()
    y, z = device.buffer(16), device.buffer(16)
    first = launch_add_one(device, np.arange(4, dtype=np.float32), y)
    second = launch_add_one(device, y, y)
    third = launch_add_one(device, y, z)
    del third
    assert floats(y) == [2, 3, 4, 5]
    assert floats(z) == [3, 4, 5, 6]
    memoryview(y)[:4] = bytes(4)  # allowed: the first two launches have ended too
    del first, second
    assert floats(y) == [0, 3, 4, 5]


def test_one_buffer_may_be_bound_twice(package: ModuleType) -> None:
    device = package.Device()
    y = device.buffer(np.arange(4, dtype=np.float32))
    launch_add_one(device, y, y)
    assert floats(y) == [1, 2, 3, 4]


def test_an_int_argument_is_a_buffer_of_zeros(package: ModuleType) -> None:
    device = package.Device()
    y = device.buffer(16)
    launch_add_one(device, 16, y)
    assert floats(y) == [1, 1, 1, 1]


def test_surplus_threads_run(package: ModuleType) -> None:
    device = package.Device()
    y = device.buffer(np.full(192, -1, np.int32))
    device.kernel(GROUP_OF_64).function("number")(65, y)
    assert np.frombuffer(y, np.int32).tolist() == [*range(128), *[-1] * 64]


def test_count_and_buffers_are_required(package: ModuleType) -> None:
    device = package.Device()
    function = device.kernel(GROUP_OF_64).function("number")
    for arguments in [(), (4,)]:
        with pytest.raises(package.error, match=r"^Buffer not found$"):
            function(*arguments)
    with pytest.raises(package.error, match=r"^First argument should be an integer kernel count$"):
        function("4", device.buffer(256))
    with pytest.raises(package.error, match=r"^Unsupported input format$"):
        function(4, None)


LARGE = """
kernel void large(device float *y [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
    threadgroup float tile[16384];
    tile[i] = i;
    y[i] = tile[i];
}"""


def test_what_ends_the_process(fake: ModuleType) -> None:
    """A launch that returns without endEncoding, and a division by zero; no handler of exceptions stops it."""
    device = fake.Device()
    y = device.buffer(256)
    number = device.kernel(GROUP_OF_64).function("number")
    ends: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "CannotCreatePipelineState": (device.kernel(LARGE).function("large"), (4, y)),
        "BufferNotFound": (number, (4, fake.Device().buffer(256))),
        "32 buffers": (number, (4, *[y] * 32)),
        "Division by zero": (device.kernel(GROUP_OF_64.replace("(64)", "(16)")).function("number"), (4, y)),
    }
    for message, (function, arguments) in ends.items():
        with pytest.raises(fake.Abort, match=message) as caught:
            function(*arguments)
        assert not isinstance(caught.value, Exception)


def test_the_list_of_command_buffers_is_never_emptied(fake: ModuleType) -> None:
    """It is one of the process, not of a device object, and the end of each launch searches it."""

    def searched_for(number: int) -> int:
        before = fake.searched
        for _ in range(number):
            run()
        return int(fake.searched - before)

    def run() -> None:
        device = fake.Device()
        launch_add_one(device, device.buffer(16), device.buffer(16))

    kept = len(fake.command_buffers)
    first, second = searched_for(5), searched_for(5)
    assert len(fake.command_buffers) == kept + 10
    assert second - first == 5 * 5


@pytest.mark.parametrize("count", [0, -1, 2.5, 2**32])
def test_a_count_that_nothing_checks(fake: ModuleType, count: Any) -> None:
    device = fake.Device()
    with pytest.raises(fake.Misuse, match="count="):
        device.kernel(GROUP_OF_64).function("number")(count, device.buffer(256))


def test_a_count_that_is_no_integer(fake: ModuleType) -> None:
    device = fake.Device()
    with pytest.raises(SystemError):
        device.kernel(GROUP_OF_64).function("number")(4j, device.buffer(256))


def test_misuse_of_a_launch(fake: ModuleType) -> None:
    device = fake.Device()
    y = device.buffer(256)
    function = device.kernel(GROUP_OF_64).function("number")
    with pytest.raises(fake.Misuse, match="keyword arguments"):
        function(4, y, wait=True)
    with pytest.raises(fake.Misuse, match=r"wrote buffer\(0\), which is a copy"):
        function(4, np.full(64, -1, np.int32))
    with pytest.raises(fake.Misuse, match=r"v0\.1"):
        fake.init()
