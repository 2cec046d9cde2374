"""Checks of accesses: what a launch returns and raises. The kinds of findings are those of ``faults``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import anymetal
from anymetal import LaunchError, api, clang, isolation
from anymetal.clang.findings import KINDS, Finding, merged
from anymetal.clang.lines import Place
from anymetal.clang.report import found_error
from anymetal.command import app
from anymetal.sarif import sarif
from shared import few

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
SHIFTED = HEAD + (
    "kernel void shifted(device const float *x, device float *y, constant uint &far,\n"
    "                    uint i [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {\n"
    "    threadgroup float s[64];\n"
    "    s[i] = x[i];\n"
    "    FENCE\n"
    "    if (n > 60)\n"
    "        y[i] = 0;\n"
    "    y[i] = s[(i + far) % n];\n"
    "}\n"
)
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
RIGHT, RACE = SHIFTED.replace("FENCE", BARRIER), SHIFTED.replace("FENCE", "")


def launch(source, *arguments, grid=48, group=48, name="shifted", **options):
    return anymetal.compile(source, version="3.2", **options)[name](grid, group, *arguments)


def inputs():
    return np.arange(48, dtype=np.float32), np.full(48, -1, np.float32)


def test_a_launch_without_findings():
    x, y = inputs()
    done = launch(RIGHT, x, y, 32)
    np.testing.assert_array_equal(y, np.roll(x, -32))
    assert (done.changed, done.written, done.findings) == ({1: 48}, {1: 48}, ())
    assert [place.line for place in done.unreached] == [9]
    assert [place.line for place in launch(RIGHT, *inputs(), 32, grid=20, group=20).unreached] == [9]


@pytest.mark.parametrize("isolate", [False, True])
def test_an_error_has_findings_and_changes_no_array(isolate):
    x, y = inputs()
    with pytest.raises(LaunchError) as caught:
        launch(RACE, x, y, 32, check_order=False, isolate=isolate)
    (race,) = caught.value.findings
    assert (race.kind, race.level, race.buffer, race.groups) == ("race", "error", "s", (0, 0))
    assert (race.place.line, race.other.line) == (10, 6)
    assert race.index == race.threads[1]
    assert abs(race.threads[0] - race.threads[1]) in (16, 32)
    text = str(caught.value)
    assert "   10 |     y[i] = s[(i + far) % n];\n      |            ^" in text
    assert "Put threadgroup_barrier(mem_flags::mem_threadgroup) between them" in text
    assert (y == -1).all()
    assert Finding.described(json.loads(json.dumps(race.describe()))) == race


@pytest.mark.parametrize("check_order", [False, True])
def test_a_smaller_grid(check_order):
    """Also one in which the order of the threads makes a difference."""
    x, y = inputs()
    with pytest.raises(LaunchError, match=r"A smaller grid with the first error: (\d+) threads in threadgroups of \1$"):
        launch(RACE, x, y, 32, check_order=check_order)


def test_the_search_for_a_smaller_grid_has_the_remaining_time():
    race = Finding("race", "error", "", Place("<msl>", 1, 1), threads=(0, 1), groups=(0, 0))
    endless, order = Finding("endless", "error", ""), Finding("order", "error", "")
    call = isolation.Call("dispatch", 64, 32, [], (), (), None, 10)

    def search(seconds, found, *kinds):
        given = []

        def run(one):
            given.append(one.seconds)
            raise found_error("", found)

        return str(api.smaller_case(call, found_error("", (race, *kinds)), run, seconds)), given

    text, given = search(0.25, (race, order))
    assert text == "\nA smaller grid with the first error: 1 threads in threadgroups of 1"
    assert given
    assert all(0 < seconds <= 0.25 for seconds in given)
    assert search(-1, (race,)) == ("", [])
    assert search(10, (race,), endless) == ("", [])
    text, given = search(10, (race, endless))
    assert (text, bool(given)) == ("", True)
    assert max(given) <= api.SHRINKING_SECONDS


REUSED = HEAD + (
    "kernel void reused(device float *y, uint i [[thread_position_in_threadgroup]]) {\n"
    "    threadgroup float s[64];\n"
    "    s[i] = y[i];\n"
    "    threadgroup_barrier(mem_flags::mem_threadgroup);\n"
    "    const float sum = s[i] + s[(i + 32) % 64];\n"
    "    threadgroup_barrier(mem_flags::mem_none);\n"
    "    if (i < 32)\n"
    "        s[i] = sum;\n"
    "    y[i] = sum;\n"
    "}\n"
)


@pytest.mark.parametrize("seed", range(4))
def test_a_thread_that_writes_what_it_and_others_read(seed):
    """In half of the orders the thread that writes has read first, and the other simdgroup after it."""
    device = clang.Device(sanitize=True, check_order=False, seed=seed)
    function = device.kernel(REUSED, fast_math=False).function("reused")
    (note,) = function.dispatch(64, np.zeros(64, np.float32), threadgroup=64).findings
    assert (note.kind, note.level, note.place.line, note.other.line) == ("fence", "note", 10, 7)


@pytest.mark.parametrize("pointer", ["packed_float4", "volatile float"])
def test_writes_of_all_threads_to_one_element_are_a_race(pointer):
    """Of a vector that is aligned as its components, and of a volatile number."""
    source = f"{HEAD}kernel void f(device {pointer} *y, uint i [[thread_position_in_grid]]) {{ y[0] = i; }}"
    with pytest.raises(LaunchError) as caught:
        launch(source, np.zeros(4, np.float32), name="f", check_order=False)
    assert [one.kind for one in caught.value.findings] == ["race"]


def test_the_end_of_a_threadgroup_variable():
    """One element past the end is in no variable, also if the compiler does not know which one it is."""
    source = HEAD + (
        "kernel void f(device float *y, constant uint &n, uint i [[thread_position_in_threadgroup]]) {\n"
        "    threadgroup float a[64];\n"
        "    threadgroup float b[64];\n"
        "    threadgroup float *both[] = {b, a};\n"
        "    threadgroup float *p = both[n / 4];\n"
        "    p[i + n] = y[i];\n"
        "    y[i] = p[i + n];\n"
        "}\n"
    )
    for n in (1, 4):
        with pytest.raises(LaunchError) as caught:
            launch(source, np.zeros(64, np.float32), n, grid=64, group=64, name="f")
        assert caught.value.findings[0].kind == "out-of-bounds"
        assert caught.value.findings[0].buffer == ("a" if n > 3 else "b")
    launch(source, np.zeros(60, np.float32), 4, grid=60, group=60, name="f")


def test_levels():
    def found(level):
        levels = {"lockstep": level, "uncovered": "off"}
        return launch(RACE, *inputs(), 1, grid=32, group=32, check_order=False, levels=levels).findings

    assert {one.level for one in found("warning")} == {"warning"}
    with pytest.raises(LaunchError) as caught:
        found("error")
    assert {one.kind for one in caught.value.findings} == {"lockstep"}
    assert found("off") == ()


REFUSED = {
    "kind": ({"levels": {"racing": "off"}}, "racing' is no kind of finding; the kinds are race, "),
    "level": ({"levels": {"race": "loud"}}, "the levels are error, warning, note, off"),
    "fatal": ({"levels": {"null": "off"}}, "this kind ends a launch"),
    "no file": ({"suppress": "none.toml"}, "none.toml"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_are_checked(name):
    options, words = REFUSED[name]
    with pytest.raises(LaunchError, match=re.escape(words)):
        anymetal.compile(RIGHT, **options)


def test_options_have_types():
    with pytest.raises(TypeError, match="levels is of type list"):
        anymetal.compile(RIGHT, levels=["race"])
    with pytest.raises(TypeError, match="sanitize is of type int"):
        clang.Device(sanitize=1)


SUPPRESSED = '[[suppress]]\nkind = "race"\nkernel = "shift*"\nline = "y[i] = s["\nreason = "known"\n'


def test_suppressions(tmp_path):
    accepted = tmp_path / "accepted.toml"
    accepted.write_text(SUPPRESSED)
    assert launch(RACE, *inputs(), 32, check_order=False, suppress=accepted).findings == ()
    for old, new in (("shift*", "shift"), ("y[i] = s[", "y[i] = x["), ('"race"', '"fence"')):
        accepted.write_text(SUPPRESSED.replace(old, new))
        with pytest.raises(LaunchError, match="nothing orders"):
            launch(RACE, *inputs(), 32, check_order=False, suppress=accepted)
    for old, new in (('"known"', '""'), ("reason", "because"), ('"race"', '"null"'), ("[[", "[")):
        accepted.write_text(SUPPRESSED.replace(old, new))
        with pytest.raises(LaunchError, match=r"accepted\.toml"):
            anymetal.compile(RACE, suppress=accepted)


ATOMIC = (
    HEAD + "kernel void add(device atomic_float *sum, device const float *x, uint i [[thread_position_in_grid]]) {\n"
)
ATOMIC += "    atomic_fetch_add_explicit(sum, x[i], memory_order_relaxed);\n}\n"


def test_what_hides_a_read_too_early():
    place, other = Place("a.metal", 1, 1), Place("a.metal", 2, 1)
    early = Finding("uninitialized", "error", "", place, buffer="x")
    for kind, kept in (("same-value", 2), ("race", 1)):
        assert len(merged([Finding(kind, KINDS[kind], "", place, other, buffer="x"), early])) == kept


def test_the_order_of_atomic_sums_is_legal():
    x = np.random.default_rng(0).standard_normal(300, np.float32)
    (note,) = launch(ATOMIC, np.zeros(1, np.float32), x, grid=300, group=64, name="add").findings
    assert (note.kind, note.level) == ("order", "note")
    with pytest.raises(LaunchError, match="depends on the order"):
        launch(ATOMIC, np.zeros(1, np.float32), x, grid=300, group=64, name="add", sanitize=False)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("out-of-bounds", "y[0] += y[1000];"),
        ("overflow", "y[g] = m + m;"),
        ("race", "y[(g + 1) % 4] = 7; else y[g] = 3;"),
    ],
)
def test_what_only_the_opposite_order_reaches(kind, body):
    """The threadgroup that is first does it. One is in the first order, one in the opposite, and two in neither."""
    source = f"{HEAD}kernel void f(device atomic_uint *c, device int *y, constant uint &who, constant int &m,\n" + (
        "    uint t [[thread_position_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {\n"
        "    if (t != 0) return;\n"
        f"    if (atomic_fetch_add_explicit(c, 1, memory_order_relaxed) == 0 && g == who) {body}\n}}\n"
    )
    found = []
    for who in range(4):
        try:
            launch(source, np.zeros(1, np.uint32), np.zeros(4, np.int32), who, 2**31 - 1, grid=128, group=32, name="f")
        except LaunchError as error:
            found.append([one.place.line for one in error.findings if one.kind == kind])
    assert found == [[6], [6]]


def test_the_limit_of_time_ends_the_check_of_the_opposite_order():
    source = HEAD + (
        "kernel void f(device atomic_uint *c, device uint *y, constant uint &who, constant uint &many,\n"
        "              uint g [[threadgroup_position_in_grid]]) {\n"
        "    y[g] = atomic_fetch_add_explicit(c, 1, memory_order_relaxed);\n"
        "    if (y[g] == 0 && g == who)\n"
        "        for (uint k = 0; k < many; k++) y[4 + k % 1024] ^= k;\n}\n"
    )
    kernel, ends = anymetal.compile(source)["f"], list[tuple[float, str]]()

    def run(who, seconds):
        begin = time.process_time()
        done = kernel(4, 1, np.zeros(1, np.uint32), np.zeros(1028, np.uint32), who, 5_000_000, seconds=seconds)
        return time.process_time() - begin, done.findings[-1].message

    for who in range(4):
        ends.append(run(who, 60))
        with contextlib.suppress(LaunchError):  # the first order has no time, either
            ends.append(run(who, 0.6 * max(ends)[0]))
    assert ["was not checked to its end" in text for _, text in ends].count(True) == 1


def test_variables_that_are_used_before_they_are_set():
    source = HEAD + "template <class T> T twice(T v) {\n    T w;\n    return v + w;\n}\n"
    source += "kernel void f(device float *y) { y[0] = twice(y[0]); }\n"
    with pytest.raises(LaunchError, match="the variable w is used before it is set") as caught:
        launch(source, np.zeros(1, np.float32), grid=1, group=1, name="f")
    assert caught.value.findings[0].place.line == 5
    source = source.replace("T w;", "T w; if (v > 3) w = v;")
    assert not launch(source, np.full(1, 4, np.float32), grid=1, group=1, name="f").findings
    with pytest.raises(LaunchError, match="thread 0 reads `w`, a private variable, before anything wrote it") as caught:
        launch(source, np.zeros(1, np.float32), grid=1, group=1, name="f")
    assert caught.value.findings[0].place.line == 5
    source = source.replace("T w;", "switch (0) { case 1: T w;").replace("return v + w;", "return v + w; } return v;")
    source = source.replace("case 1:", "default: case 1:")  # a declaration that labels may jump over is not watched
    (note,) = launch(source, np.zeros(1, np.float32), grid=1, group=1, name="f", check_order=False).findings
    assert (note.level, note.message) == ("note", "the variable w may be used before it is set")


def test_the_message_of_a_misaligned_access_has_the_type_without_an_address_space():
    source = "kernel void f(device float *x) { *(device float4 *)(x + 1) = 0; }"
    with pytest.raises(LaunchError) as caught:
        anymetal.compile(source, sanitize=True, check_order=False)["f"](1, 1, np.zeros(8, np.float32))
    (found,) = caught.value.findings
    assert found.message == (
        "thread 0 accesses a float4 at byte offset 4 of buffer(0) `device float *x` of 32 bytes, "
        "which is no multiple of its alignment of 16 bytes"
    )
    assert found.advice.startswith("Use packed_float4, which is aligned as a float,")


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("while (y[0] >= 0)\n y[0] += 1;", "endless", "did not end within 0.1 seconds"),
        ("y[0] = deep(y[0]);", "fault", "overran its stack"),
    ],
)
def test_a_launch_that_is_stopped_has_the_line_of_the_kernel(body, kind, text):
    deep = "inline float deep(float x) {\n return deep(x + 1) + 1; }"
    source = f"{HEAD}{deep}\nkernel void f(device float *y) {{ {body} }}"
    with pytest.raises(LaunchError, match=text) as caught:
        anymetal.compile(source)["f"](1, 1, np.zeros(1, np.float32), seconds=0.1)
    (found,) = caught.value.findings
    lines = source.splitlines()
    assert found.kind == kind
    assert ("y[0]" if kind == "endless" else "return deep") in lines[found.place.line - 1]


def test_the_last_page_of_sparse_memory_has_no_guard():
    x = anymetal.sparse(4097, np.float32)
    source = "kernel void f(device float *x, uint i [[thread_position_in_grid]]) { x[4096 - i] = 1; }"
    library = anymetal.compile(source, sanitize=True, check_order=False)
    assert not library["f"](4, 4, x).findings
    assert x[-4:].tolist() == [1] * 4


def test_sparse_memory():
    x = anymetal.sparse((3, 2**31), np.uint8)
    x[2, -1] = 7
    source = (
        HEAD + "kernel void last(device uchar *x, constant ulong &n, device int *y) { y[0] = x[n - 1]; x[0] = 1; }\n"
    )
    y = np.zeros(1, np.int32)
    done = launch(source, x, np.uint64(x.size), y, grid=1, group=1, name="last", check_order=False)
    assert (y[0], x[0, 0], x[2, -1]) == (7, 1, 7)
    assert done.written == {2: 1}
    with pytest.raises(LaunchError, match="check_order=False"):
        launch(source, x, np.uint64(x.size), y, grid=1, group=1, name="last")
    with pytest.raises(LaunchError, match="process of its own"):
        launch(source, x, np.uint64(x.size), y, grid=1, group=1, name="last", check_order=False, isolate=True)
    count = anymetal.sparse(1, np.int32)
    source = HEAD + (
        "kernel void f(device int *y, device atomic_int *n, uint i [[thread_position_in_grid]]) {\n"
        "    atomic_fetch_add_explicit(n, 1, memory_order_relaxed); y[i] = 1; }\n"
    )
    with pytest.raises(LaunchError, match="out of bounds") as caught:
        launch(source, y, count, grid=64, group=64, name="f", check_order=False)
    assert 0 < count[0] <= 64
    assert "smaller grid" not in str(caught.value)  # a second launch would count on
    for shape in (0, 2**36):
        with pytest.raises(LaunchError, match="legal are 1 to 34359738368 bytes"):
            anymetal.sparse(shape, np.uint8)


def test_undefined_memory_that_is_read_only():
    source = HEAD + "kernel void f(device const float *x, device float *y) { y[0] = x[1]; }\n"
    y = np.zeros(1, np.float32)
    with pytest.raises(LaunchError, match=r"reads x\[1\], .*, before anything wrote it"):
        launch(source, anymetal.undefined(np.ones(2, np.float32)), y, grid=1, group=1, name="f")
    launch(source, np.ones(2, np.float32), anymetal.undefined(y), grid=1, group=1, name="f")
    assert y[0] == 1


def test_a_grid_that_is_too_small():
    source = HEAD + "kernel void f(device float2 *y, uint i [[thread_position_in_grid]]) { y[i] = i; }\n"
    y = np.zeros(20, np.float32)
    (note,) = launch(source, y, grid=8, group=4, name="f").findings
    assert (note.kind, note.level) == ("uncovered", "note")
    assert "8 of the 10 elements of buffer(0)" in note.message
    for grid, size in ((10, 0), (8, 4)):
        assert launch(source, y[size:], grid=grid, group=1, name="f").findings == ()
    (note,) = launch(source, y, grid=1, group=1, name="f").findings
    assert (
        "1 of the 10 elements of buffer(0) `device float2 *y` was written, and nothing used the others" in note.message
    )
    with pytest.raises(LaunchError, match="8 of the 10"):
        launch(source, y, grid=8, group=4, name="f", levels={"uncovered": "error"})
    assert launch(source, y, grid=8, group=4, name="f", levels={"uncovered": "off"}).findings == ()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_output_that_is_filled_in_part(monkeypatch, workers):
    monkeypatch.setenv("ANYMETAL_LAUNCH_WORKERS", workers)
    source = HEAD + (
        "kernel void f(device const float *x, device float *y, uint i [[thread_position_in_grid]]) { BODY }\n"
    )

    def found(body, grid=64, size=128):
        x, y = np.ones(64, np.float32), np.zeros(size, np.float32)
        return [
            one.message for one in launch(source, x, y, grid=grid, group=16, name="f", define={"BODY": body}).findings
        ]

    (text,) = found("y[i] = x[i];", size=65)
    assert text.startswith("64 of the 65 elements of buffer(1) `device float *y` were written")
    assert found("y[i] = x[i];", size=64) == []
    (text,) = found("y[2 * i] = x[i];")
    assert text.startswith("64 of the 128 elements")
    assert found("if (i % 8 == 0) y[i] = x[i];", size=64) == []  # the grid is as large
    (text,) = found("if (i % 8 == 0) y[i + 5] = x[i];", size=69)
    assert text.startswith("8 of the 69 elements")
    assert found("if (i < 8) y[i] = y[i + 8] * x[i];") == []  # the memory has two uses


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_input_that_nothing_reads(monkeypatch, workers):
    monkeypatch.setenv("ANYMETAL_LAUNCH_WORKERS", workers)
    source = HEAD + (
        "kernel void f(device const float *x, constant float *w, constant uint &n, device float *y,\n"
        "              uint i [[thread_position_in_grid]]) { BODY }\n"
    )
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)

    def unread(body, *given, **options):
        launched = launch(
            source,
            *(given or (x, x.copy(), np.uint32(64), y)),
            grid=64,
            group=4,
            name="f",
            define={"BODY": body},
            **options,
        )
        assert {(one.kind, one.level) for one in launched.findings} <= {("unread", "note")}
        return [re.findall(r"buffer\((\d)\) `(.*)`", one.message)[0] for one in launched.findings]

    every = [("0", "device const float *x"), ("1", "constant float *w"), ("2", "constant uint &n")]
    assert unread("y[i] = x[i] + w[i] * n;") == []
    assert unread("y[i] = x[i] + x[i] * n;") == every[1:2]  # the wrong name
    assert unread("y[i] = 1;") == every
    assert unread("if (n > 64) y[i] = x[i]; else y[i] = w[i];") == every[:1]
    assert unread("y[i] = n; if (i == 63) y[i] += x[i]; if (i > 61) y[i] += w[i / 2];") == []
    shared = np.ones(128, np.float32)
    whole = (x, shared, np.uint32(64), y)
    assert unread("y[i] = n + w[0];", *whole) == every[:1]
    assert unread("y[i] = n + w[0];", *whole, unread=True) == every[:1]
    assert unread("y[i] = n + x[0];", x, x, np.uint32(64), y) == []  # one memory with two names
    assert unread("y[i] = n + w[0];", None, *whole[1:]) == []  # nothing is bound
    assert unread("y[i] = n + w[0];", *whole, levels={"unread": "off"}) == []
    source = HEAD + (
        "struct A { device const float *p [[id(0)]]; device float *q [[id(1)]]; };\n"
        "kernel void f(constant A &a, uint i [[thread_position_in_grid]]) { a.q[i] = READ; }\n"
    )
    for read, found in (("a.p[i]", []), ("i", ["no thread read buffer(0).p, or no result depends on what it read"])):
        launched = launch(source, {"p": x, "q": y}, grid=64, group=4, name="f", define={"READ": read})
        assert [one.message for one in launched.findings] == found


def test_smaller_buffers():
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    source = HEAD + (
        "kernel void f(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {\n"
        "    y[i / 2 * 2] = x[i];\n}\n"
    )
    text = r"first error: 2 threads in threadgroups of 1, buffer\(0\) of 16 bytes, buffer\(1\) of 16 bytes$"
    with pytest.raises(LaunchError, match=text):
        launch(source, x, y, grid=256, group=128, name="f")


@pytest.mark.parametrize("kind", ["threadgroup", "simdgroup"])
def test_the_number_of_barriers_that_are_counted(kind):
    source = HEAD + (
        "kernel void rounds(device int *y, constant int &n, uint i [[thread_position_in_threadgroup]]) {\n"
        "    for (int k = 0; k < n; k++)\n"
        f"        {kind}_barrier(mem_flags::mem_device);\n"
        "    y[i] = n;\n"
        "}\n"
    )
    y = np.zeros(2, np.int32)
    assert launch(source, y, 131_000, grid=2, group=2, name="rounds", check_order=False).findings == ()
    with pytest.raises(LaunchError, match="more barriers") as caught:
        launch(source, y, 132_000, grid=2, group=2, name="rounds", check_order=False)
    assert [(one.kind, one.place.line) for one in caught.value.findings] == [("barriers", 5)]


def test_concurrent_launches():
    """Each launch has its own shadow: findings of one thread are not those of another."""
    from concurrent.futures import ThreadPoolExecutor

    kernels = [anymetal.compile(one, check_order=False)["shifted"] for one in (RIGHT, RACE)]

    def run(i):
        try:
            return len(kernels[i % 2](48, 48, *inputs(), 32).findings)
        except LaunchError as error:
            return [one.kind for one in error.findings]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(16))) == [0, ["race"]] * 8


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.metal").write_text(RACE)
    line = ["f.metal", "--kernel", "shifted", "--grid", "48", "--group", "48", "--buffer", "x:float32:48=1"]
    line += ["--buffer", "y:float32:48", "--bytes", "far:uint32=32", "--one-order"]

    def run(*more):
        return CliRunner().invoke(app, [*line, *more])

    done = run("--sarif", "log.sarif", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["findings"][0]["kind"] == "race"
    assert "f.metal:10:12: error: " in done.stderr
    (result,) = json.loads((tmp_path / "log.sarif").read_text())["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("race", "error")
    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "f.metal"}, "region": {"startLine": 10, "startColumn": 12}}
    done = run("--level", "race=note", "--sarif", "log.sarif")
    assert (done.exit_code, "[race]" in done.stdout) == (0, True)
    assert json.loads((tmp_path / "log.sarif").read_text())["runs"][0]["results"][0]["level"] == "note"
    assert "with all checks" not in run("--unchecked").stdout
    assert run("--lockstep", "loud").exit_code == run("--level", "race").exit_code == 2
    (tmp_path / "f.toml").write_text(SUPPRESSED)
    assert "race" not in run("--suppress", "f.toml").stdout


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "S s; s.a = x[i]; if (x[i] > 5) s.b[1] = 1; x[i] = s.a + s.b[1];",
            "reads `s.b[1]`, a private variable, before",
        ),
        (
            "float a[4] = {1}; thread float *p = a; x[i] = p[i + 4];",
            "accesses memory by `p[i + 4]` outside of a variable",
        ),
        ("device float3 *p = (device float3 *)x; p[i] = 1;", "writes 16 bytes out of bounds: x[0]"),
        (
            "thread float *p; { float v = x[i]; p = &v; } x[i] = *p;",
            "reads the variable `v` of line 5, whose block has",
        ),
    ],
)
def test_messages_name_private_variables(body, message):
    source = (
        f"{HEAD}struct S {{ float a, b[2]; }};\nkernel void f(device float *x, uint i [[thread_position_in_grid]]) {{\n"
    )
    with pytest.raises(LaunchError) as caught:
        launch(f"{source}{body} }}", np.ones(3, np.float32), grid=1, group=1, name="f", check_order=False)
    assert message in caught.value.findings[0].message


def test_three_numbers_an_element_are_a_packed_vector():
    source = HEAD + "kernel void f(device float3 *x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }"
    with pytest.raises(
        LaunchError, match="A float3 takes 16 bytes in memory: three numbers an element are a packed_float3"
    ):
        launch(source, np.ones((4, 3), np.float32), grid=4, group=4, name="f", check_order=False)


def test_every_kind_is_documented():
    """The page about the checks has a row for each kind but those that only say that something else went wrong."""
    page = (Path(__file__).parents[1] / "docs" / "msl_checks.md").read_text()
    missing = [kind for kind in KINDS if f"`{kind}`" not in page]
    assert missing == ["barriers", "fault"]


@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not limit the address space")
@pytest.mark.parametrize(("gigabytes", "expected"), [(250, "1 error"), (50, "needs 102 GB of address space")])
def test_a_small_address_space(gigabytes, expected):
    code = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({gigabytes} * 2**30,) * 2)\n"
    code += "import anymetal, numpy as np\n"
    code += "f = anymetal.compile('kernel void f(device float *x) { x[1 << 20] = 0; }')['f']\n"
    code += "f(1, 1, np.zeros(4, np.float32))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert expected in ran.stderr


# ------------------------------------------------------------------------------------------------ several processes

SPREAD = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has them")
ROWS = HEAD + (
    "kernel void rows(device float *y, constant uint &odd, uint i [[thread_position_in_threadgroup]],\n"
    "                 uint row [[threadgroup_position_in_grid]], uint n [[threads_per_threadgroup]],\n"
    "                 uint rows [[threadgroups_per_grid]]) {\n"
    "    threadgroup float s[64];\n"
    "    s[i] = y[row * n + i];\n"
    "    threadgroup_barrier(mem_flags::mem_threadgroup);\n"
    "    const float next = s[(i + 1) % n];\n"
    "    if (row == odd)\n"
    "        ODD\n"
    "    y[row * n + i] = next + row + 1;\n"
    "}\n"
)
PLAIN = HEAD + (
    "kernel void rows(device float *y, constant uint &odd, uint at [[thread_position_in_grid]],\n"
    "                 uint i [[thread_position_in_threadgroup]], uint row [[threadgroup_position_in_grid]],\n"
    "                 uint n [[threads_per_threadgroup]], uint rows [[threadgroups_per_grid]]) {\n"
    "    if (row == odd)\n"
    "        ODD\n"
    "    y[row * n + i] += row + 1;\n"
    "}\n"
)


def spread(monkeypatch, workers, source, y, odd=9999, *more, groups=16, threads=16, seconds=None, **options):
    """Run ROWS with processes: the launch, or the text and findings of an error, and the results."""
    if workers:
        monkeypatch.setenv("ANYMETAL_LAUNCH_WORKERS", str(workers))
    else:
        monkeypatch.delenv("ANYMETAL_LAUNCH_WORKERS", raising=False)
    device = clang.Device(**{"check_order": False, "sanitize": True} | options)
    buffer = device.buffer(y)
    try:
        done = device.kernel(source, version="3.1").function("rows").dispatch(
            groups * threads, buffer, *map(np.uint32, (odd, *more)), threadgroup=threads, seconds=seconds
        )  # fmt: skip
    except LaunchError as error:
        return (str(error), error.findings), None
    return done, np.frombuffer(buffer, y.dtype)


@SPREAD
@pytest.mark.parametrize("source", [ROWS, PLAIN])
@pytest.mark.parametrize("options", [{}, {"sanitize": False}, {"check_order": True}])
@pytest.mark.parametrize(("groups", "workers"), [(2, 2), (3, 2), (5, 250), (16, 3), (77, 5), (300, 7)])
def test_processes_run_each_threadgroup_once(source, options, groups, workers, monkeypatch):
    y = np.arange(groups * 16, dtype=np.float32)
    rows = y.reshape(groups, 16)
    expected = (np.roll(rows, -1, 1) if source is ROWS else rows) + np.arange(1, groups + 1)[:, None]
    done, found = spread(monkeypatch, workers, source.replace("ODD", "y[0] = 0;"), y, groups=groups, **options)
    assert done.workers == min(groups, workers)
    np.testing.assert_array_equal(found, expected.ravel())
    if options.get("sanitize", True):
        assert (done.findings, done.written[0]) == ((), y.nbytes)
        alone, _ = spread(monkeypatch, 1, source.replace("ODD", "y[0] = 0;"), y, groups=groups, **options)
        assert (alone.workers, len(alone.unreached)) == (0, 1)
        assert done.unreached == alone.unreached


ODD = {
    "nothing": ";",
    "a race with a far threadgroup": "y[(row + rows / 2) % rows * n + i] = 1;",
    "a race with the next threadgroup": "y[(row + 1) % rows * n + i] = 1;",
    "a late write": "{ for (volatile uint k = 0; k < 9000; k++) {} y[(row + rows / 2) % rows * n + i] = 1; }",
    "a read of another one's": "y[row * n + i] = y[(row + rows / 2 + 1) % rows * n];",
    "bytes of another one's": "((device uchar *)y)[(row + 3) % rows * n * 4 + 1] = 1;",
    "a write of the same value": "for (uint k = 0; k < rows; k++) y[k * n + i] = y[k * n + i];",
    "out of bounds": "y[rows * n + i] = 0;",
    "far out of bounds": "y[i + (row << 27)] = 0;",
    "overflow": "y[row * n + i] = int(row + 0x7ffffff0) + 16;",
    "an atomic": "atomic_fetch_add_explicit((device atomic_int *)y + i, 1, memory_order_relaxed);",
}


CHOSEN = "switch (what) {\n" + "".join(f"case {i}: {text} break;\n" for i, text in enumerate(ODD.values())) + "}"
"""One of them, in a kernel that is compiled once for all."""


@SPREAD
@pytest.mark.parametrize("options", [{}, {"check_order": True}, {"sanitize": False, "check_order": True}])
@pytest.mark.parametrize("source", few([PLAIN, ROWS], 1))
@pytest.mark.parametrize("what", ODD)
def test_processes_find_what_one_finds(what, source, options, monkeypatch):
    y = np.arange(256, dtype=np.float32)
    text = source.replace("&odd,", "&odd, constant uint &what,").replace("ODD", CHOSEN)

    def outcome(workers):
        done, found = spread(monkeypatch, workers, text, y, 13, [*ODD].index(what), **options)
        return done if found is None else (done.findings, done.unreached, done.written, found.tolist())

    alone = outcome(1)
    for workers in (3,) if options else (3, 4):  # with 3 all conflicts are of two processes, with 4 some of one
        assert outcome(workers) == alone


@SPREAD
@pytest.mark.parametrize("options", [{}, {"check_order": True}, {"sanitize": False, "check_order": True}])
@pytest.mark.parametrize("source", [ROWS, PLAIN])
def test_a_threadgroup_that_waits_for_another_one(source, options, monkeypatch):
    text = source.replace("ODD", "while (((device volatile float *)y)[(row + 1) % rows * n] > 0) {}")
    ended = [spread(monkeypatch, n, text, np.ones(256, np.float32), odd=5, seconds=0.1, **options)[0] for n in (1, 3)]
    one, other = ([(at.kind, at.message, at.groups) for at in found] for _, found in ended)  # it may stop anywhere
    assert one == other
    assert [row[0] for row in one if row[0] == "endless"]


TAKEN = HEAD + (
    "kernel void rows(device float *y, constant uint &odd, device atomic_uint *next, threadgroup float *s,\n"
    "                 uint i [[thread_position_in_grid]]) {\n"
    "    s[odd] = i;\n"
    "    y[i] = NEXT;\n"
    "}\n"
)


@SPREAD
@pytest.mark.parametrize("sanitize", [True, False])
def test_numbers_that_threadgroups_take(sanitize, monkeypatch):
    """Atomic operations give each threadgroup a number, in the order in which they run."""
    text, found = TAKEN.replace("NEXT", "atomic_fetch_add_explicit(next, 1, memory_order_relaxed)"), []
    for workers in ("1", "3", "3"):
        monkeypatch.setenv("ANYMETAL_LAUNCH_WORKERS", workers)
        device = clang.Device(check_order=False, sanitize=sanitize)
        f, y = device.kernel(text).function("rows"), device.buffer(256)
        done = f.dispatch(64, y, np.uint32(0), np.zeros(1, np.uint32), threadgroup=1, local={0: 16})
        found.append((done.workers, np.frombuffer(y, np.float32).tolist()))
    assert found == [(0, found[0][1])] * 3
    assert sorted(found[0][1]) == list(range(64))


@SPREAD
def test_numbers_that_threads_take(monkeypatch):
    """The order of atomic operations in threadgroup memory explains a difference, wherever threadgroups run."""
    take = (
        "threadgroup atomic_uint next;\n    atomic_store_explicit(&next, 0, memory_order_relaxed);\n"
        f"    {BARRIER}\n    y[row * n + i] = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);"
    )
    text = PLAIN.replace("ODD", ";").replace("y[row * n + i] += row + 1;", take)
    given = {"check_order": True, "levels": {"unread": "off"}}
    done = [spread(monkeypatch, n, text, np.zeros(256, np.float32), **given)[0] for n in (1, 3)]
    assert done[0].findings == done[1].findings
    assert [(one.kind, one.level) for one in done[1].findings] == [("order", "note")]


@SPREAD
def test_threadgroup_memory_of_a_process_has_guards(monkeypatch):
    monkeypatch.setenv("ANYMETAL_LAUNCH_WORKERS", "3")
    device, source = clang.Device(check_order=False), TAKEN.replace("NEXT", "i").replace("atomic_uint", "uint")

    def run(text):
        arguments = np.zeros(64, np.float32), np.uint32(0), np.zeros(1, np.uint32)
        return device.kernel(text).function("rows").dispatch(64, *arguments, threadgroup=1, local={0: 48})

    assert run(source).workers == 3
    with pytest.raises(LaunchError, match=r"out of bounds: at byte offset -1 of threadgroup\(0\)"):
        run(source.replace("s[odd]", "s[int(odd) - 1]"))


@SPREAD
def test_bytes_at_the_ends_of_threadgroups(monkeypatch):
    """Threadgroups of 16 single bytes whose pieces share words with their neighbours: no conflict, and none is lost."""
    text = PLAIN.replace("float", "uchar").replace("y[row * n + i] +=", "y[(row * n + i) % (n * rows)] +=")
    y = np.zeros(16 * 13, np.uint8)
    done, found = spread(monkeypatch, 5, text.replace("ODD", ";"), y, threads=13)
    assert done.workers == 5
    np.testing.assert_array_equal(found, np.repeat(np.arange(1, 17), 13))


LONG = PLAIN.replace(
    "y[row * n + i] +=",
    "float v = y[at];\n    for (uint k = 0; k < 400000; k++) v = v / 2 + 1;\n    y[at] = v > 0 ? 0 : 9;\n    y[at] +=",
).replace("ODD", ";")
"""About 10 ms for each threadgroup."""


def children():
    """The child processes of the threads of this process."""
    found = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found |= set(map(int, file.read_text().split()))
    return found


@SPREAD
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
@pytest.mark.parametrize("options", [{}, {"sanitize": False}, {"check_order": True}])
def test_a_long_launch_is_spread_and_a_short_one_is_not(options, monkeypatch):
    expected = np.repeat(np.arange(1, 65), 16)
    done, found = spread(monkeypatch, None, LONG, np.zeros(1024, np.float32), groups=64, **options)
    assert done.workers >= 2
    np.testing.assert_array_equal(found, expected)
    done, found = spread(
        monkeypatch, None, LONG.replace("400000", "1"), np.zeros(1024, np.float32), groups=64, **options
    )
    assert done.workers == 0
    np.testing.assert_array_equal(found, expected)


@SPREAD
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
@pytest.mark.parametrize("what", ["y[first * n + i] = 1;", "y[row * n + i] = y[first * n + i];"])
def test_a_conflict_with_what_ran_before(what, monkeypatch):
    """The last threadgroup conflicts with the first, which has run when the others are spread."""
    count = "y[at] = atomic_fetch_add_explicit((device atomic_uint *)y + n * rows, i == 0, memory_order_relaxed);\n}"
    counting = PLAIN.replace("ODD", ";").replace("y[row * n + i] += row + 1;\n}", count)
    _, turns = spread(monkeypatch, 1, counting, np.zeros(1040, np.float32), groups=64)
    order = np.argsort(turns[:1024].reshape(64, 16).max(1))
    text = LONG.replace("y[at] +=", f"const uint first = {order[0]};\n    if (row == odd) {{ {what} }}\n    y[at] +=")
    ended = [spread(monkeypatch, n, text, np.zeros(1024, np.float32), odd=order[-1], groups=64)[0] for n in (1, None)]
    assert ended[0] == ended[1]
    assert ended[0][1][0].kind == "race"


@SPREAD
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGINT])
def test_a_process_that_dies_changes_nothing(number, monkeypatch):
    before, ended, begun = children(), threading.Event(), time.monotonic()

    def end():
        while not ended.is_set():
            for child in sorted(children() - before)[1:2]:
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    os.kill(child, number)
            time.sleep(0.01)

    ender = threading.Thread(target=end)
    ender.start()
    done, found = spread(monkeypatch, 3, LONG, np.zeros(512, np.float32), groups=32)
    ended.set()
    ender.join()
    assert done.workers == (3 if number in (signal.SIGINT, signal.SIGTERM) else 0)  # these are for the parent
    np.testing.assert_array_equal(found, np.repeat(np.arange(1, 33), 16))
    assert children() <= before
    assert time.monotonic() - begun < 40  # one that cannot end is killed after 60 s of processor time


@SPREAD
def test_an_interrupt_ends_all_processes(monkeypatch):
    text, before = LONG.replace("00000", "000000"), children()
    clang.Device(check_order=False, sanitize=True).kernel(text, version="3.1").function("rows")  # compiled
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        spread(monkeypatch, 3, text, np.zeros(512, np.float32), groups=32)
    assert children() <= before


@SPREAD
def test_processes_end_with_that_of_the_launch():
    code = (
        "import os; os.environ['ANYMETAL_LAUNCH_WORKERS'] = '3'\n"
        "import numpy as np, anymetal\n"
        "f = anymetal.compile('kernel void f(device volatile float *y, uint i [[thread_position_in_grid]]) "
        "{ while (y[i] == 0) y[i] = 0; }', check_order=False)['f']\n"
        "print('ready', flush=True)\n"
        "f(64, 16, np.zeros(64, np.float32))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as ran:
        ran.stdout.readline()
        file = Path(f"/proc/{ran.pid}/task/{ran.pid}/children")
        while len(found := file.read_text().split()) < 3:
            time.sleep(0.01)
        ran.kill()
    end = time.monotonic() + 20
    while any(map(is_running, found)):
        assert time.monotonic() < end
        time.sleep(0.01)


@SPREAD
def test_a_signal_between_threadgroups_is_no_fault_of_the_kernel():
    """Other than one that arrives in a kernel, it ends the process, as without a launch."""
    code = (
        "import numpy as np, anymetal\n"
        "f = anymetal.compile('kernel void f(device float *y, uint i [[thread_position_in_grid]]) { y[i] = 1; }')\n"
        "f['f'](1, 1, y := np.zeros(200000, np.float32))\n"
        "while True:\n"
        "    print('begins', flush=True)\n"
        "    try: f['f'](200000, 1, y)\n"
        "    except anymetal.LaunchError: pass"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as ran:
        for k in range(400):
            if not ran.stdout.readline():
                break
            time.sleep(k % 40 * 0.0005)  # after a fixed time it may always arrive in a kernel
            ran.send_signal(signal.SIGSEGV)
            if not select.select([ran.stdout], [], [], 10)[0]:  # the launch neither returns nor ends the process
                break
        ran.kill()
    assert ran.returncode == -signal.SIGSEGV


def is_running(process):
    with contextlib.suppress(OSError):
        return "(zombie)" not in Path(f"/proc/{process}/status").read_text()
    return False


def test_the_number_of_processes_is_checked(monkeypatch):
    for value in ("0", "-1", "251", "many", "2.5"):
        monkeypatch.setenv("ANYMETAL_LAUNCH_WORKERS", value)
        with pytest.raises(
            LaunchError, match=re.escape(f"ANYMETAL_LAUNCH_WORKERS={value!r} is not a number from 1 to 250")
        ):
            launch(RIGHT, *inputs(), 32)


@pytest.mark.parametrize(
    "body",
    [
        "y[i] = i < k ? s[i * (k / n) + i / z] : 0;",
        "y[i] = i < k ? s[k] : s[i]; y[i] = i < k ? s[i / z] : 0.0f;",
        "uint q = i < k ? a[i / z] : 0u; y[i] = q;",
        "float2 v; v.x = s[i]; y[i] = i < k ? v.x + a[0] / k + i / z : 0;",
    ],
)
def test_the_column_of_a_finding_is_that_of_the_source(body):
    """Also behind what the front end inserts, and in SARIF."""
    source = (
        f"{HEAD}kernel void d(device const uint *a, device const float *s, constant uint &k, constant int &n, "
        f"constant int &z, device float *y, uint i [[thread_position_in_grid]]) {{\n{body}\n}}\n"
    )
    with pytest.raises(LaunchError) as caught:
        launch(
            source,
            np.ones(64, np.uint32),
            np.ones(64, np.float32),
            3,
            2,
            0,
            np.zeros(4, np.float32),
            name="d",
            grid=4,
            group=4,
        )
    found = next(one for one in caught.value.findings if one.kind == "division")
    right = body.index("/ z") + 1
    assert (found.place.line, found.place.column) == (4, right)
    region = sarif([found], "d.metal")["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 4, "startColumn": right}


MESSAGES = {
    "an array of a thread": (
        "float a[4] = {1, 2, 3, 4}; y[i] = a[n + i];", 3,
        r"^thread \d of threadgroup 0 used index [456] of `a`, an array of 4 elements \(", None,
    ),
    "a lane that cannot exist": (
        "y[i] = simd_shuffle(float(i), n);", 40,
        "takes the value of lane 40, which cannot exist: a simdgroup has 32 lanes", "",
    ),
    "one store by several threads": (
        "y[0] = i;", 0, "nothing orders the two",
        "Let one thread write the element, use an atomic, or give each thread an element of its own.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_name_what_is_wrong(name):
    body, n, message, advice = MESSAGES[name]
    source = (
        f"{HEAD}kernel void f(device float *y, constant int &n, uint i [[thread_position_in_grid]]) {{\n{body}\n}}\n"
    )
    with pytest.raises(LaunchError) as caught:
        launch(source, np.zeros(4, np.float32), n, name="f", grid=4, group=4, check_order=False)
    (found,) = caught.value.findings
    assert re.search(message, found.message)
    assert ", at line" not in found.message
    assert advice is None or found.advice == advice


SHUFFLED = "float v = simd_shuffle_down(x[i], 1), w = simd_shuffle(x[i], ushort(i + 16)); "


@pytest.mark.parametrize(
    ("uses", "columns"),
    [
        ("y[i] = v + w;", [11, 43]),
        ("y[i] = (i + 1 < n ? v : 0) + w;", [43]),
        ("if (i + 1 < n) y[i] = v;", []),
        ("y[i] = i < 8 ? w : 0;", []),
        ("y[i] = max(v, x[i]);", [11]),
        ("y[i] = min(v, x[i]);", [11]),
    ],
)
def test_a_value_of_a_lane_that_a_condition_discards_is_not_used(uses, columns):
    source = (
        f"{HEAD}kernel void f(device const float *x, device float *y, constant uint &n, "
        f"uint i [[thread_position_in_grid]]) {{\n{SHUFFLED}{uses}\n}}\n"
    )
    arguments = np.arange(24, dtype=np.float32) + 1, np.zeros(24, np.float32), 24
    found = []
    try:
        anymetal.compile(source)["f"](24, 24, *arguments)
    except LaunchError as error:
        found = error.findings
    assert [(one.kind, one.place.column) for one in found] == [("inactive-lane", column) for column in columns]


@pytest.mark.parametrize(
    ("body", "at"),
    [
        ("y[i] = n > 2 ? x[i + 9] : x[0];", "x[i + 9]"),
        ("if (n > 2) y[i + 9] = x[0]; else y[i] = x[1];", "= x[0]"),
        ("float v; switch (n) { case 4: v = x[i + 9]; break; default: v = x[1]; } y[i] = v;", "x[i + 9]"),
    ],
)
def test_accesses_that_the_compiler_merges_have_columns(body, at):
    source = (
        f"{HEAD}kernel void f(device const float *x, device float *y, constant int &n, "
        f"uint i [[thread_position_in_grid]]) {{\n{body}\n}}\n"
    )
    with pytest.raises(LaunchError, match="A smaller grid") as caught:
        anymetal.compile(source)["f"](4, 4, np.ones(4, np.float32), np.zeros(4, np.float32), 4)
    (found,) = caught.value.findings
    assert (found.kind, found.place.column) == ("out-of-bounds", body.index(at) + 1)


@pytest.mark.parametrize(("largest", "lines"), [(20_000, [5, 10]), (50, [10])])
def test_lines_of_a_very_large_function_are_not_counted(monkeypatch, largest, lines):
    monkeypatch.setattr("anymetal.frontend.rewrites.LARGE", largest)
    source = (
        f"#include <metal_stdlib>\nusing namespace metal;\nstatic int many(device int *y, int i) {{ int s = {largest}; "
        f"{'s += i * 3; ' * 20} if (i > 9)\n\ny[i] = 7;\nreturn s; }}\n"
        "kernel void f(device int *y, uint i [[thread_position_in_grid]]) {\n"
        "y[i] = many(y, i);\nif (i > 9)\ny[i] = 1;\n}\n"
    )
    done = anymetal.compile(source)["f"](4, 4, np.zeros(4, np.int32))
    assert [one.line for one in done.unreached] == lines
