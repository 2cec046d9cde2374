"""Interleavings of atomic operations: what repeats a schedule, where they run, and kernels that are right.

The faults that they find are pairs in faults/interleavings.metal.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import anymetal
from anymetal import clang
from anymetal.clang.findings import Finding
from anymetal.command import app

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

HEAD = """
#include <metal_stdlib>
using namespace metal;
#define LOAD(p) atomic_load_explicit(p, memory_order_relaxed)
#define STORE(p, v) atomic_store_explicit(p, v, memory_order_relaxed)
#define SWAP(p, v) atomic_exchange_explicit(p, v, memory_order_relaxed)
#define ADD(p, v) atomic_fetch_add_explicit(p, v, memory_order_relaxed)
#define WEAK(p, e, v) atomic_compare_exchange_weak_explicit(p, e, v, memory_order_relaxed, memory_order_relaxed)
#define I uint i [[thread_position_in_grid]]
#define T uint t [[thread_position_in_threadgroup]]
"""
COUNT = HEAD + "kernel void k(device atomic_uint *y, I) {\n    uint n = LOAD(y);\n    STORE(y, n + 1);\n}"


@pytest.fixture(autouse=True)
def _no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the search for a smaller grid."""
    monkeypatch.setattr("anymetal.api.SHRINKING_SECONDS", 0)


def found(source: str, grid: int, group: int, *arguments: Any, **options: Any) -> tuple[Finding, ...]:
    """Return the findings of a kernel k."""
    try:
        return anymetal.compile(source, **options)["k"](grid, group, *arguments).findings
    except anymetal.LaunchError as error:
        return tuple(error.findings)


def test_a_lost_update_names_both_threads_both_lines_and_the_values() -> None:
    y = np.zeros(1, np.uint32)
    (one,) = found(COUNT, 64, 32, y)
    assert (one.kind, one.level, one.place.line, one.other.line) == ("lost-update", "error", 13, 13)
    assert len(set(zip(one.threads, one.groups, strict=True))) == 2
    values = re.search(
        r"stores (\d+) to y.*loaded as (\d+) at line 12; .*changed it to (\d+) by then at line 13", one.message
    )
    assert values
    stored, loaded, lost = map(int, values.groups())
    assert stored == loaded + 1 != lost
    assert "atomic_fetch_add_explicit" in one.advice
    assert y[0] == 0, "no array is changed after an error"


def test_a_schedule_repeats_what_was_found() -> None:
    (one,) = found(COUNT, 64, 32, np.zeros(1, np.uint32))
    number = int(one.message.split("in schedule ")[1].split(" of seed 0")[0])
    for isolate in (False, True):
        (again,) = found(COUNT, 64, 32, np.zeros(1, np.uint32), schedule=number, isolate=isolate)
        assert replace(again, count=one.count) == one


def test_without_trials_nothing_is_tried() -> None:
    assert not found(COUNT, 64, 32, np.zeros(1, np.uint32), trials=0)
    assert not found(COUNT, 64, 32, np.zeros(1, np.uint32), sanitize=False)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"trials": -1}, anymetal.LaunchError, "trials=-1: legal are 0 to"),
        ({"schedule": 0}, anymetal.LaunchError, "schedule=0: legal are 1 to"),
        ({"trials": 2.0}, TypeError, "trials is of type float"),
        ({"schedule": True}, TypeError, "schedule is of type bool"),
        ({"schedule": 1, "runtime": "cuda"}, anymetal.LaunchError, "schedule is an option of the clang runtime"),
    ],
)
def test_illegal_numbers_are_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        anymetal.compile(COUNT, **options)


def test_interleavings_find_the_same_after_a_first_pass_in_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        HEAD
        + """kernel void k(device uint *y, device const uint *x, T, I) {
    threadgroup atomic_uint n;
    if (t == 0) STORE(&n, 0);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (x[i] > 0) STORE(&n, LOAD(&n) + 1);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = LOAD(&n);
}"""
    )

    def kinds() -> list[tuple[Any, ...]]:
        each = found(source, 256, 32, np.zeros(256, np.uint32), np.ones(256, np.uint32))
        return [(one.kind, one.place, one.message) for one in each]

    first = kinds()
    monkeypatch.setenv("ANYMETAL_LAUNCH_WORKERS", "3")
    assert kinds() == first
    assert first[0][0] == "lost-update"


def test_values_are_those_of_the_type() -> None:
    source = HEAD + "kernel void k(device atomic_float *y, I) { STORE(y, LOAD(y) - 0.5f); }"
    (one,) = found(source, 64, 32, np.full(1, -2, np.float32))
    assert re.search(r"which it loaded as -\d+(\.5)? at line", one.message)
    source = HEAD + "kernel void k(device atomic_int *y, I) { STORE(y, LOAD(y) - 1); }"
    (one,) = found(source, 64, 32, np.zeros(1, np.int32))
    assert re.search(r"stores -\d+ to y.* had changed it to -\d+ by", one.message)


def test_a_finding_of_an_interleaving_can_be_accepted() -> None:
    levels = {"lost-update": "off"}
    assert not found(COUNT, 64, 32, np.zeros(1, np.uint32), levels=levels)


def test_messages_of_a_kernel_come_once(capfd: pytest.CaptureFixture[str]) -> None:
    source = (
        HEAD
        + """kernel void k(device atomic_uint *y, I) {
    uint e = LOAD(y);
    while (!WEAK(y, &e, e + 1)) {}
    os_log_default.log("thread %u", i);
}"""
    )
    source = source.replace("using", "#include <metal_logging>\nusing", 1)
    assert not found(source, 4, 4, np.zeros(1, np.uint32), version="3.2")
    assert capfd.readouterr().err.count(": thread 3\n") == 1


RIGHT = {
    "sums": ("device atomic_uint *y", "ADD(y, 1);", [1]),
    "an exchange in a loop": ("device atomic_uint *y", "uint e = LOAD(y); while (!WEAK(y, &e, e + 1)) {}", [1]),
    "an idempotent flag": ("device atomic_uint *y", "if (i > 3 && LOAD(y) == 0) STORE(y, 1);", [1]),
    "reset by the last": (
        "device atomic_uint *y, device uint *z, uint a [[threads_per_grid]]",
        "if (ADD(y, 1) == a - 1) { STORE(y, 0); z[0] = 7; }",
        [1, 1],
    ),
    "an element of each thread": (
        "device atomic_uint *y",
        "STORE(&y[i], LOAD(&y[i]) + 1); STORE(&y[i], LOAD(&y[i]) * 2);",
        [256],
    ),
    "others after a barrier": (
        "device uint *y, uint t [[thread_position_in_threadgroup]]",
        """threadgroup atomic_uint a[64]; STORE(&a[t], t); STORE(&a[t], LOAD(&a[t]) + 1);
        threadgroup_barrier(mem_flags::mem_threadgroup); ADD(&a[(t + 1) % 64], 1);
        threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = LOAD(&a[t]);""",
        [256],
    ),
    "a bound that is looked at twice": (
        "device atomic_uint *n, device uint *q",
        "if (LOAD(n) >= 16) return; uint p = ADD(n, 1); if (p < 16) q[p] = 1;",
        [1, 16],
    ),
    "insertion in a hash table": (
        "device atomic_uint *h",
        """uint x = i % 40 + 1, s = x % 64;
        for (uint n = 0; n < 64; n++) {
            uint e = LOAD(&h[s]);
            if (e == x) return;
            if (e == 0) { do e = 0; while (!WEAK(&h[s], &e, x) && e == 0); if (e == 0 || e == x) return; }
            s = (s + 1) % 64;
        }""",
        [64],
    ),
    "pruning by the best so far": (
        "device atomic_uint *best, device const uint *x",
        """for (uint j = 0; j < 300; j++)
            if (x[i + j] > LOAD(best)) atomic_fetch_max_explicit(best, x[i + j], memory_order_relaxed);""",
        [1, 556],
    ),
    "path compression": (
        "device atomic_uint *p",
        """uint a = i, q = LOAD(&p[a]);
        while (q != a) {
            uint r = LOAD(&p[q]);
            atomic_fetch_min_explicit(&p[a], r, memory_order_relaxed);
            a = q;
            q = r;
        }""",
        [256],
    ),
    "lanes of each thread": (
        "device uint *y",
        """y[i] = simd_shuffle(i, i % 32 ^ 1) + simd_shuffle_xor(i, 16) + quad_shuffle_xor(i, i / 4 % 2 + 1)
               + simd_broadcast(i, 3);""",
        [256],
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_give_no_finding(name: str) -> None:
    parameters, body, lengths = RIGHT[name]
    starts = {"insertion in a hash table": 0, "path compression": np.maximum(np.arange(-1, 255), 0)}
    arrays = [np.zeros(n, np.uint32) + np.arange(n, dtype=np.uint32) % 7 for n in lengths]
    if name in starts:
        arrays[0][:] = starts[name]
    source = f"{HEAD}kernel void k({parameters}, I) {{ {body} }}"
    each = found(source, 256, 64, *arrays, trials=12)
    assert [one.kind for one in each if one.kind != "order"] == []
    assert all(one.level == "note" for one in each)


@pytest.mark.parametrize("kernel", ["y[i] = i;", "ADD(&n[i % 4], 1);"])
def test_kernels_without_a_use_of_what_others_change_run_as_before(kernel: str) -> None:
    source = HEAD + f"kernel void k(device uint *y, device atomic_uint *n, I) {{ {kernel} }}"
    function = clang.Device(sanitize=True, check_order=False).kernel(source).function("k")
    assert function.dispatch(64, np.zeros(64, np.uint32), np.zeros(4, np.uint32), threadgroup=32).tried == 0
    source = HEAD + "kernel void k(device uint *y, device atomic_uint *n, I) { y[i] = LOAD(n); ADD(n, 1); }"
    function = clang.Device(sanitize=True, check_order=False).kernel(source).function("k")
    assert function.dispatch(64, np.zeros(64, np.uint32), np.zeros(4, np.uint32), threadgroup=32).tried == 4


UNREAD = (
    HEAD
    + """kernel void k(device const float *x, device float *y, device const half *h,
                    threadgroup float *p [[threadgroup(0)]], I, T) {
    threadgroup float a[32], b[32];
    a[t] = x[i];
    b[t] = 2 * x[i];
    p[t] = 1;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = a[31 - t] + (t < 8 ? b[t] : 0) + h[i];
}"""
)


@pytest.mark.parametrize("isolate", [False, True])
def test_elements_that_no_thread_reads_are_counted(isolate: bool) -> None:
    kernel = anymetal.compile(UNREAD, unread=True, isolate=isolate)["k"]
    arrays = np.ones(100, np.float32), np.zeros(64, np.float32), np.ones(65, np.float16)
    launch = kernel(64, 32, *arrays, local={0: 128})
    assert launch.unread == {0: 36, 2: 1, "a": 0, "b": 2 * 24 * 4, "p": 2 * 32 * 4}
    assert anymetal.compile(UNREAD)["k"](64, 32, *arrays, local={0: 128}).unread is None


def test_the_command_expects_inputs_to_be_read(tmp_path: Path) -> None:
    file = tmp_path / "k.metal"
    file.write_text(
        "kernel void k(device const float *x, device float *y, uint i [[thread_position_in_grid]]) { y[i] = x[i]; }"
    )
    run = ["--kernel", "k", "--grid", "8", "--buffer", "y:float32:8", "--expect-read"]

    def ended(*more: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, [str(file), *run, *more])
        return done.exit_code, done.output

    assert ended("x", "--buffer", "x:float32:8")[0] == 0
    status, text = ended("x", "--buffer", "x:float32:12")
    assert status == 1
    assert "no thread read 4 elements of x" in text
    status, text = ended("z", "--buffer", "x:float32:12")
    assert status == 2
    assert "--expect-read z: kernel `k` only reads x" in text
