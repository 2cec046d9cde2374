"""The clang runtime: threadgroups and their memory, offsets, indirect grids, endless kernels, denormals, crashes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

import anymetal
from anymetal import LaunchError, clang
from shared import python

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
PLACES = """
kernel void f(device uint3 *places, uint3 i [[thread_position_in_grid]], uint3 g [[threadgroup_position_in_grid]],
              uint3 n [[threads_per_grid]]) { places[(i.z * n.y + i.y) * n.x + i.x] = g; }"""
COPY = """
struct Size { float3 scale; uint n; };
kernel void f(device const float *x, device float *y, constant Size &size, uint i [[thread_position_in_grid]]) {
    if (i < size.n) y[i] = x[i];
}"""
SIZE = np.dtype({"names": ["scale", "n"], "formats": [(np.float32, 3), np.uint32], "offsets": [0, 16], "itemsize": 32})


@pytest.fixture(scope="module")
def device():
    return clang.Device()


def function(device, source, **options):
    return device.kernel(HEADER + source, **options).function("f")


def size(n):
    return np.array(((1, 1, 1), n), SIZE)


# ------------------------------------------------------------------------------------------------ threadgroups


@pytest.mark.parametrize(("groups", "width"), [(3, 4), ((2, 3), (4, 2)), ([1, 2, 3], (2, 1, 3))])
def test_whole_threadgroups(device, groups, width):
    counts, widths = (np.array([*np.atleast_1d(one), 1, 1][:3]) for one in (groups, width))
    grid = counts * widths
    out = device.buffer(16 * int(np.prod(grid)))
    function(device, PLACES).dispatch_threadgroups(groups, out, threadgroup=width)
    places = np.frombuffer(out, np.uint32).reshape(*grid[::-1], 4)
    for z, y, x in np.ndindex(*grid[::-1]):
        np.testing.assert_array_equal(places[z, y, x, :3], np.array([x, y, z]) // widths)


def test_an_indirect_grid(device):
    out, counts = device.buffer(16 * 24), np.array([7, 2, 3, 1], np.uint32)
    f = function(device, PLACES)
    f.dispatch_threadgroups(anymetal.at(counts, 4), out, threadgroup=4)
    assert np.frombuffer(out, np.uint32).reshape(24, 4)[:, :3].max(0).tolist() == [1, 2, 0]
    f.dispatch_threadgroups(device.buffer(np.array([0, 2, 3], np.uint32)), 16, threadgroup=4)  # runs nothing
    for wrong in (anymetal.at(counts, 8), anymetal.at(counts, 2), anymetal.at(16, 0)):
        with pytest.raises(LaunchError, match="three of type uint32"):
            f.dispatch_threadgroups(wrong, out, threadgroup=4)


@pytest.mark.parametrize(
    ("groups", "width", "message"),
    [
        (0, 4, "groups=0: a number of threadgroups is 1 to"),
        ((1, 0), 4, "groups=.* a number of threadgroups is 1 to"),
        (1, 1025, "a threadgroup of kernel `f` has at most 1024 threads"),
        (2**31, 4, "the threads along an axis are 1 to"),
        ((2**20, 2**12), 4, r"the number of threads is 1 to 2\*\*32"),
    ],
)
def test_illegal_threadgroups(device, groups, width, message):
    with pytest.raises(LaunchError, match=message):
        function(device, PLACES).dispatch_threadgroups(groups, 16, threadgroup=width)


# ------------------------------------------------------------------------------------------------ buffers


def test_a_buffer_from_an_offset_on(device):
    x, y = device.buffer(np.arange(8, dtype=np.float32)), device.buffer(np.zeros(8, np.float32))
    f = function(device, COPY)
    f.dispatch(4, anymetal.at(x, 16), anymetal.at(y, 8), size(4))
    np.testing.assert_array_equal(np.frombuffer(y, np.float32), [0, 0, 4, 5, 6, 7, 0, 0])
    both = device.buffer(np.arange(8, dtype=np.float32))
    f.dispatch(4, both, anymetal.at(both, 16), size(4))
    np.testing.assert_array_equal(np.frombuffer(both, np.float32), [0, 1, 2, 3] * 2)
    with pytest.raises(LaunchError, match=r"offset 32 of buffer\(0\), .* of 32 bytes bound at offset 16, past its end"):
        f.dispatch(5, anymetal.at(x, 16), y, size(5))
    for offset in (2, 32, 2**70):
        with pytest.raises(
            LaunchError, match=rf"buffer\(0\) of kernel `f`: the offset {offset} is not a multiple of 4"
        ):
            f.dispatch(4, anymetal.at(x, offset), y, size(4))
    with pytest.raises(LaunchError, match="offset=-4: an offset in bytes is 0 or more"):
        anymetal.at(x, -4)
    with pytest.raises(TypeError, match="an offset in bytes is an integer"):
        anymetal.at(x, 1.5)


@pytest.mark.parametrize(
    "value", [size(4), size(4).tobytes(), size(4).reshape(1), size(4)[()]], ids=["array", "bytes", "of one", "scalar"]
)
def test_a_struct_as_a_value(device, value):
    y = device.buffer(16)
    function(device, COPY).dispatch(4, np.ones(4, np.float32), y, value)
    np.testing.assert_array_equal(np.frombuffer(y, np.float32), 1)


@pytest.mark.parametrize("nbytes", [16, 20, 33])
def test_a_struct_of_another_size(device, nbytes):
    message = rf"buffer\(2\) of kernel `f`, `constant Size &size`, needs 32 bytes and has {nbytes}\. .* of one of 4"
    with pytest.raises(LaunchError, match=message):
        function(device, COPY).dispatch(4, np.ones(4, np.float32), 16, bytes(nbytes))


def test_a_buffer_may_be_longer_than_a_struct(device):
    longer = np.concatenate([np.frombuffer(size(4).tobytes(), np.uint8), np.zeros(9, np.uint8)])
    function(device, COPY).dispatch(4, np.ones(4, np.float32), 16, longer)


# ------------------------------------------------------------------------------------------------ threadgroup memory

LOCAL = """#include <metal_stdlib>
using namespace metal;
[[max_total_threads_per_threadgroup(64)]]
kernel void f(device float *y [[buffer(0)]], threadgroup float4 *a [[threadgroup(1)]],
              uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
    threadgroup float *m = (threadgroup float *)a;
    BODY
}
"""


@pytest.fixture
def local(device):
    return lambda body, device=device: function(device, LOCAL.replace("BODY", body), fast_math=False)


BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


def test_threadgroup_memory_of_a_parameter(device, local):
    y = device.buffer(4 * 128)
    f = local(f"m[t] = t; {BARRIER} y[i] = m[63 - t];")
    f.dispatch(128, y, threadgroup=64, local={1: 256})
    np.testing.assert_array_equal(np.frombuffer(y, np.float32), np.tile(np.arange(64)[::-1], 2))


@pytest.mark.parametrize("nbytes", [16, 48, 4096, 32768])
@pytest.mark.parametrize(
    ("place", "at", "side"),
    [("{n}", "{n}", "past its end"), ("-4", "-[14]", "before its start"), ("{n} + 4000", ".*", "")],
)
@pytest.mark.parametrize("access", ["y[0] = *p;", "*p = 1;"])
def test_accesses_outside_it(device, local, nbytes, place, at, side, access):
    bytes_of = f"(threadgroup char *)m + {place.format(n=nbytes)}"
    f = local(f"threadgroup float *p = (threadgroup float *)({bytes_of}); {access}")
    message = rf"out of bounds: at byte offset {at.format(n=nbytes)} of threadgroup\(1\), `threadgroup float4 \*a`"
    with pytest.raises(LaunchError, match=rf"{message}, of {nbytes} bytes, {side}"):
        f.dispatch(1, device.buffer(4), local={1: nbytes})


def test_a_write_before_it_in_one_run(local):
    device = clang.Device(check_order=False)
    with pytest.raises(LaunchError, match=r"wrote out of bounds: at byte offset -1 of threadgroup\(1\)"):
        local("m[-1] = 1;", device).dispatch(1, device.buffer(4), local={1: 48})


def test_it_is_not_initialized(device, local):
    """A read of it before a write is NaN, in each threadgroup, and another value in the second run."""
    y = device.buffer(4 * 8)
    f = local("float v = m[t]; m[t] = 1; y[i] = v == v ? 1 : 0;")
    f.dispatch(8, y, threadgroup=4, local={1: 16})
    np.testing.assert_array_equal(np.frombuffer(y, np.float32), 0)
    with pytest.raises(LaunchError, match="order of its threads"):
        local("y[i] = m[t];").dispatch(8, y, threadgroup=4, local={1: 16})


@pytest.mark.parametrize(
    ("lengths", "error", "message"),
    [
        (None, LaunchError, r"threadgroup\(1\) of kernel `f`, `threadgroup float4 \*a`, needs a length in bytes"),
        ({1: 0}, LaunchError, "a multiple of 16 from 16 on, not 0"),
        ({1: 20}, LaunchError, "a multiple of 16 from 16 on, not 20"),
        ({1: -16}, LaunchError, "not -16"),
        (
            {1: 32784},
            LaunchError,
            "has 32784 bytes of threadgroup memory, 0 of them in variables; the maximum is 32768",
        ),
        ({1: 16, 0: 16}, LaunchError, r"no parameter threadgroup\(0\); it has threadgroup\(1\)"),
        ({1: 16.0}, TypeError, r"local\[1\]=16.0 of type float: a length is an integer"),
        ([16], TypeError, "it is a mapping from an index to a length in bytes"),
    ],
)
def test_illegal_lengths(device, local, lengths, error, message):
    with pytest.raises(error, match=message):
        local("y[0] = 1;").dispatch(1, device.buffer(4), local=lengths)


def test_lengths_of_a_kernel_without_parameters(device):
    with pytest.raises(LaunchError, match=r"no parameter threadgroup\(0\); it has none"):
        function(device, COPY).dispatch(1, 4, 4, size(1), local={0: 16})


# ------------------------------------------------------------------------------------------------ values of lanes


@pytest.mark.parametrize("kind", ["uchar", "ushort", "float", "int3", "uint4", "long2", "ulong4"])
def test_lanes_exchange_up_to_32_bytes(device, local, kind):
    """The 20 threads of a part of a simdgroup read the values of each other."""
    f = local(f"""
    {kind} mine = {kind}(3 * t + 1), other = simd_shuffle(mine, ushort((t + 5) % 20));
    bool wrong = any(vec<long, 2>(long(other{"" if kind[-1] not in "234" else ".y"})) != long(3 * ((t + 5) % 20) + 1));
    y[t] = wrong || simd_ballot(true).all() || t >= 20;""")
    y = device.buffer(np.full(20, np.nan, np.float32))
    f.dispatch(20, y, local={1: 16})
    np.testing.assert_array_equal(np.frombuffer(y, np.float32), 0)


# ------------------------------------------------------------------------------------------------ endless kernels

ENDLESS = {
    "a loop that changes nothing": ("while (y[0] < 1) y[0] = 0;", "none"),
    "a loop": ("while (y[0] == 0) y[1] = i;", "none"),
    "a barrier in a loop": ("while (y[0] == 0)\n threadgroup_barrier(mem_flags::mem_device);", "line 4, column 2"),
    "a sum in a loop": ("while (y[0] == 0)\n y[1] = simd_sum(y[1]);", "line 4, column 9"),
    "a loop behind a barrier": ("threadgroup_barrier(mem_flags::mem_none);\nwhile (y[0] == 0);", "line 3, column 86"),
}


def endless(body):
    return f"kernel void f(device volatile float *y, uint i [[thread_position_in_threadgroup]]) {{ {body} }}"


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_kernel_stops(device, name):
    body, place = ENDLESS[name]
    f, y = function(device, endless(body)), device.buffer(8)
    message = (
        r"kernel `f` did not end within 0\.1 seconds of processor time: it was stopped in threadgroup \d \(the last "
        rf"barrier or simdgroup function of the thread: {place}; threads=64 runs 64 .* raise ANYMETAL_LAUNCH_SECONDS"
    )
    with pytest.raises(LaunchError, match=message):
        f.dispatch(64, y, threadgroup=32, seconds=0.1)
    np.frombuffer(y, np.float32)[0] = 1
    f.dispatch(64, y, threadgroup=32, seconds=1)  # the next launch is an ordinary one


def test_the_limit_in_the_environment(device, monkeypatch):
    monkeypatch.setenv("ANYMETAL_LAUNCH_SECONDS", "0.05")
    with pytest.raises(LaunchError, match=r"within 0\.05 seconds"):
        function(device, endless("while (y[0] == 0) y[1] = i;"))(32, device.buffer(8))
    for value in ("0", "-1", "nan", "many", "1e10"):
        monkeypatch.setenv("ANYMETAL_LAUNCH_SECONDS", value)
        with pytest.raises(LaunchError, match=f"ANYMETAL_LAUNCH_SECONDS='{value}' is not a number of seconds above 0"):
            function(device, COPY).dispatch(1, 4, 4, size(1))
    with pytest.raises(LaunchError, match="seconds=True is not a number"):
        function(device, COPY).dispatch(1, 4, 4, size(1), seconds=True)


def test_endless_kernels_in_threads_stop_each_on_its_own(device):
    f, ended = function(device, endless("while (y[0] == 0) y[1] = i;")), []

    def run(seconds):
        start = time.thread_time()
        with pytest.raises(LaunchError, match=f"within {seconds} seconds"):
            f.dispatch(1, device.buffer(8), seconds=seconds)
        assert time.thread_time() - start > 0.9 * seconds
        ended.append(seconds)

    threads = [threading.Thread(target=run, args=(seconds,)) for seconds in (0.3, 0.1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == [0.1, 0.3]


@pytest.mark.parametrize("name", ENDLESS)
def test_an_interrupt_ends_a_launch(device, name):
    f, y = function(device, endless(ENDLESS[name][0])), device.buffer(8)
    before = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    start = time.process_time()
    with pytest.raises(KeyboardInterrupt):
        f.dispatch(64, y, seconds=20)
    assert time.process_time() - start < 5
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_with_a_handler_that_returns(device):
    f, caught = function(device, endless("while (y[0] == 0) y[1] = i;")), []
    before = signal.signal(signal.SIGINT, lambda *_: caught.append(1))
    try:
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(LaunchError, match="kernel `f` was interrupted in threadgroup 0"):
            f.dispatch(64, device.buffer(8), seconds=20)
        os.kill(os.getpid(), signal.SIGINT)  # Python's handler is in place again
    finally:
        signal.signal(signal.SIGINT, before)
    assert caught == [1, 1]


def test_signals_of_others_keep_their_meaning():
    """An interrupt without a handler, and a limit of processor time that is not that of a launch, end the process."""
    for number in ("SIGINT", "SIGXCPU") if sys.platform == "linux" else ("SIGINT",):
        done = python(f"""
        import os, signal, threading
        from anymetal import clang
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        f = clang.Device().kernel({endless("while (y[0] == 0) y[1] = i;")!r}).function("f")
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.{number})).start()
        f.dispatch(1, 8, seconds=20)
        """)
        assert done.returncode == -getattr(signal, number), done.stderr


def test_two_installations_in_a_process(tmp_path):
    """The functions that kernels call are those of the launcher that was loaded first."""
    done = python(f"""
    import ctypes, shutil
    from anymetal.clang import launcher
    from anymetal.frontend.toolchain import find
    launcher.launcher(find())
    path = launcher._launchers.pop().path
    shutil.copy(path, {str(tmp_path / "other.so")!r})
    launcher.NativeLauncher({str(tmp_path / "other.so")!r})
    """)
    assert "LaunchError: another installation of anymetal runs kernels in this process" in done.stderr


# ------------------------------------------------------------------------------------------------ denormals

PRODUCTS = "kernel void f(device float *y, device float *s, uint i [[thread_position_in_grid]]) { y[i] = y[i] * s[i]; }"


@pytest.mark.parametrize(("denormals", "expected"), [("keep", [1e-38, 1e-20]), ("flush", [0, 0])])
def test_denormals(denormals, expected):
    """Results and inputs of arithmetic, in the launch alone, even if it fails."""
    device = clang.Device(denormals=denormals)
    y = device.buffer(np.array([2e-38, 1e-40], np.float32))
    f, factors = function(device, PRODUCTS), np.array([0.5, 1e20], np.float32)
    f.dispatch(2, y, factors)
    np.testing.assert_allclose(np.frombuffer(y, np.float32), expected, rtol=1e-5)
    tiny = np.array([2e-38], np.float32)
    assert (tiny * np.float32(0.5))[0] > 0
    with pytest.raises(LaunchError, match="out of bounds"):
        f.dispatch(6, y, factors)
    with pytest.raises(LaunchError, match="did not end"):
        function(device, endless("while (y[0] == 0) y[1] = i;")).dispatch(1, device.buffer(8), seconds=0.05)
    assert (tiny * np.float32(0.5))[0] > 0


def test_illegal_denormals():
    with pytest.raises(LaunchError, match="denormals='zero': legal values are 'keep' and 'flush'"):
        clang.Device(denormals="zero")
