"""The clang runtime: exact grids with threadgroups of a chosen size, and options of a compilation."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

from anymetal import CompileError, LaunchError, clang

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"


@pytest.fixture(scope="module")
def device():
    return clang.Device()


def dispatch(device, source, threads, *arguments, out, threadgroup=None, **options):
    """Launch the kernel ``f`` on an exact grid with one more buffer at the end; return what is in it."""
    buffer = device.buffer(out)
    device.kernel(HEADER + source, **options).function("f").dispatch(
        threads, *arguments, buffer, threadgroup=threadgroup
    )
    return np.frombuffer(buffer, out.dtype).reshape(out.shape)


# ------------------------------------------------------------------------------------------------ exact grids

UNGUARDED = """
kernel void f(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
              uint i [[thread_position_in_grid]]) { y[i] = 2 * x[i]; }"""


@pytest.mark.parametrize("threadgroup", [None, 1, 7, 64, (1024,), [33, 1]])
@pytest.mark.parametrize("count", [1, 5, 1000, 2049])
def test_exactly_these_threads_run(device, count, threadgroup):
    x = np.arange(count, dtype=np.float32)
    found = dispatch(device, UNGUARDED, count, x, out=np.full(count, np.nan, np.float32), threadgroup=threadgroup)
    np.testing.assert_array_equal(found, 2 * x)
    with pytest.raises(LaunchError, match="out of bounds"):
        device.kernel(HEADER + UNGUARDED).function("f")(count, x, device.buffer(x.nbytes))


@pytest.mark.parametrize(
    ("threads", "threadgroup"),
    [((7, 3, 5), (4, 2, 3)), ((1, 1, 9), (1, 1, 4)), ((6, 4, 2), (6, 4, 2)), ((5, 6), (2, 4)), (11, 4)],
)
def test_positions_along_three_axes(device, threads, threadgroup):
    source = """
    struct Row { uint3 group, place, extent, width, grid, groups; uint index, simdgroups, total; };
    kernel void f(device Row* rows [[buffer(0)]], uint3 i [[thread_position_in_grid]],
                  uint3 g [[threadgroup_position_in_grid]], uint3 t [[thread_position_in_threadgroup]],
                  uint3 e [[threads_per_threadgroup]], uint3 w [[dispatch_threads_per_threadgroup]],
                  uint3 n [[threads_per_grid]], uint3 m [[threadgroups_per_grid]],
                  uint k [[thread_index_in_threadgroup]], uint s [[simdgroups_per_threadgroup]],
                  uint d [[dispatch_simdgroups_per_threadgroup]]) {
        rows[(i.z * n.y + i.y) * n.x + i.x] = Row{g, t, e, w, n, m, k, s, d};
    }"""
    names = ("group", "place", "extent", "width", "grid", "groups")
    layout = np.dtype(
        {
            "names": [*names, "index", "simdgroups", "total"],
            "formats": [(np.uint32, 3)] * 6 + [np.uint32] * 3,
            "offsets": [16 * i for i in range(6)] + [96, 100, 104],
            "itemsize": 112,
        }
    )
    grid, width = (np.array([*np.atleast_1d(one), 1, 1][:3]) for one in (threads, threadgroup))
    rows = dispatch(device, source, threads, out=np.zeros(tuple(grid[::-1]), layout), threadgroup=threadgroup)
    for z, y, x in np.ndindex(*grid[::-1]):
        position = np.array([x, y, z])
        group, row = position // width, rows[z, y, x]
        place, extent = position % width, np.minimum(width, grid - group * width)
        expected = {"group": group, "place": place, "extent": extent, "width": width, "grid": grid}
        for name, value in (expected | {"groups": -(-grid // width)}).items():
            np.testing.assert_array_equal(row[name], value, err_msg=f"{name} at {position}")
        assert row["index"] == place[0] + extent[0] * (place[1] + extent[1] * place[2])
        assert row["simdgroups"] == -(-np.prod(extent) // 32)
        assert row["total"] == -(-np.prod(width) // 32)


REDUCTION = """
kernel void f(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint2 i [[thread_position_in_grid]],
              uint2 t [[thread_position_in_threadgroup]], uint2 n [[threads_per_grid]],
              uint2 e [[threads_per_threadgroup]]) {
    threadgroup float sums[32];
    float sum = simd_sum(x[i.x * n.y + i.y]);
    if (t.y % 32 == 0) sums[t.y / 32] = sum;
    BARRIER
    if (t.y == 0) {
        for (uint k = 1; k < (e.y + 31) / 32; k++) sum += sums[k];
        y[i.x] = sum;
    }
}"""
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


@pytest.mark.parametrize("columns", [1, 31, 32, 33, 100, 1000])
def test_threadgroups_of_a_row_reduce_it(device, columns):
    x = np.random.default_rng(1).integers(-9, 9, (5, columns)).astype(np.float32)
    found = dispatch(
        device, REDUCTION.replace("BARRIER", BARRIER), (5, columns), x, out=np.full(5, np.nan, np.float32),
        threadgroup=(1, columns),
    )  # fmt: skip
    np.testing.assert_array_equal(found, x.sum(1))


def test_missing_barriers_in_small_threadgroups_are_errors(device):
    x, out = np.ones((5, 100), np.float32), np.zeros(5, np.float32)
    with pytest.raises(LaunchError, match=r"order of its threads.*threads=\(5, 100\) runs 500 threads, 5 threadgroups"):
        dispatch(device, REDUCTION.replace("BARRIER", ""), (5, 100), x, out=out, threadgroup=(1, 100))


def test_partial_threadgroups_at_the_end_synchronize(device):
    source = f"""
    kernel void f(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]],
                  uint t [[thread_position_in_threadgroup]], uint e [[threads_per_threadgroup]]) {{
        threadgroup float tile[64];
        tile[t] = i;
        {BARRIER}
        y[i] = tile[e - 1 - t];
    }}"""
    found = dispatch(device, source, 150, out=np.zeros(150, np.float32), threadgroup=64)
    groups = [np.arange(first, min(first + 64, 150))[::-1] for first in (0, 64, 128)]
    np.testing.assert_array_equal(found, np.concatenate(groups))


@pytest.mark.parametrize(
    ("threads", "threadgroup", "error", "message"),
    [
        (0, None, LaunchError, "threads=0: a number of threads is 1 to"),
        ((3, -1), None, LaunchError, r"threads=\(3, -1\): a number of threads is 1 to"),
        ((1, 2, 3, 4), None, LaunchError, "one to three components"),
        ((), None, LaunchError, "one to three components"),
        (2.0, None, TypeError, "threads=2.0 of type float: a number of threads is an integer"),
        (True, None, TypeError, "of type bool"),
        (8, 1025, LaunchError, "a threadgroup of kernel `f` has at most 1024 threads"),
        (8, (1024, 2), LaunchError, "at most 1024 threads"),
        (8, 0, LaunchError, "threadgroup=0: a number of threads is 1 to"),
        ((4, 2), None, LaunchError, "thread positions of one component, for grids of one axis"),
    ],
)
def test_illegal_grids(device, threads, threadgroup, error, message):
    with pytest.raises(error, match=message):
        dispatch(
            device, UNGUARDED, threads, np.ones(8, np.float32), out=np.ones(8, np.float32), threadgroup=threadgroup
        )


def test_the_number_of_threads_is_32_bits(device):
    source = UNGUARDED.replace("uint i", "uint3 p").replace("{ y[i] = 2 * x[i]; }", "{ y[p.x] = x[p.x]; }")
    with pytest.raises(LaunchError, match=r"the number of threads is 1 to 2\*\*32"):
        dispatch(device, source, (2**20, 2**20), np.ones(1, np.float32), out=np.ones(1, np.float32))


def test_the_attribute_limits_the_threadgroup(device):
    source = "[[max_total_threads_per_threadgroup(7)]]" + UNGUARDED
    x, out = np.ones(20, np.float32), np.zeros(20, np.float32)
    np.testing.assert_array_equal(dispatch(device, source, 20, x, out=out), 2 * x)  # no multiple of 32
    with pytest.raises(LaunchError, match="at most 7 threads"):
        dispatch(device, source, 20, x, out=out, threadgroup=8)


# ------------------------------------------------------------------------------------------------ versions

FEATURES = {
    "2.4": {
        "atomic": "device atomic<int>* a = (device atomic<int>*)y; "
        "atomic_fetch_add_explicit(a, 1, memory_order_relaxed);",
        "shuffle and fill": "y[i] = simd_shuffle_and_fill_down(y[i], 0.0f, 1);",
    },
    "3.0": {
        "atomic_float": "device atomic_float* a = (device atomic_float*)y; "
        "atomic_fetch_add_explicit(a, 1.0f, memory_order_relaxed);"
    },
    "3.1": {"bfloat": "y[i] = float(bfloat(1.0f));", "function": "float (*g)(float) = 0; y[i] = g ? 1 : 0;"},
    "3.2": {
        "lambda": "auto g = [](float v) { return v + 1; }; y[i] = g(1);",
        "log": 'os_log_default.log("y is %f", y[i]); metal::os_log_default.log_error("no value");',
    },
}
VERSIONS = ("2.3", "2.4", "3.0", "3.1", "3.2")


@pytest.mark.parametrize(("since", "name"), [(since, name) for since, found in FEATURES.items() for name in found])
def test_features_begin_with_a_version(device, since, name):
    body = FEATURES[since][name]
    source = f"{HEADER}kernel void f(device float* y, uint i [[thread_position_in_grid]]) {{ {body} }}"
    for version in VERSIONS:
        if VERSIONS.index(version) < VERSIONS.index(since):
            with pytest.raises(CompileError, match=r"<msl>:3:\d+: error"):
                device.kernel(source, version=version)
        else:
            device.kernel(source, version=version)
    with pytest.raises(CompileError):
        device.kernel(source)


MESSAGES = {
    '"i=%u half %.2f vec %v3f %% %s %c", i, half(0.5), float3(1, 2, 3), "text", \'z\'':
        "i=3 half 0.50 vec 1.000000,2.000000,3.000000 % text z",
    '"%08x %+lld %f %d", 255u, long(-5), 3, 2.5f': "000000ff -5 3 2.5",
    '"%d %n"': "(missing) (missing)",
    '"%n", 7': "7",
    f'"{"a" * 2000}"': "a" * 1023,
}  # fmt: skip


@pytest.mark.parametrize("workers", ["1", "3"])
@pytest.mark.parametrize("level", ["", "_debug", "_info", "_error", "_fault"])
def test_messages_are_printed_once(monkeypatch, capfd, level, workers):
    monkeypatch.setenv("ANYMETAL_LAUNCH_WORKERS", workers)
    logs = "".join(f"os_log_default.log{level}({message});" for message in MESSAGES)
    source = (
        f"kernel void f(device uint* y, uint i [[thread_position_in_grid]]) {{ y[i] = i; if (i == 3) {{ {logs} }} }}"
    )
    dispatch(clang.Device(sanitize=True), source, 8, out=np.zeros(8, np.uint32), threadgroup=2, version="3.2")
    start = f"log{level.replace('_', ' ')}, thread 1 of threadgroup 1: "
    assert capfd.readouterr().err.splitlines() == [start + text for text in MESSAGES.values()]


def test_the_version_is_a_macro(device):
    source = "kernel void f(device uint* y, uint i [[thread_position_in_grid]]) { y[i] = __METAL_VERSION__; }"
    for version in VERSIONS:
        found = dispatch(device, source, 1, out=np.zeros(1, np.uint32), version=version)
        assert found[0] == int(version.replace(".", "")) * 10
    assert dispatch(device, source, 1, out=np.zeros(1, np.uint32))[0] == 230
    with pytest.raises(CompileError, match=r"version='4\.7': the versions of MSL are 2\.3, 2\.4, 3\.0, 3\.1, 3\.2"):
        device.kernel(HEADER + source, version="4.7")


# ------------------------------------------------------------------------------------------------ fast math


# ------------------------------------------------------------------------------------------------ included files

USES = """#include <metal_stdlib>
#include <lib/twice.h>
kernel void f(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] = lib::twice(float(i)); }"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "twice.h").write_text(
        '#pragma once\n#include "factor.h"\nnamespace lib { template <class T> T twice(T x) { return FACTOR * x; } }\n'
    )
    (tmp_path / "lib" / "factor.h").write_text("#pragma once\n#define FACTOR 2\n")
    return tmp_path


def run_included(device, folder, source=USES):
    out = device.buffer(12)
    device.kernel(source, include=[folder]).function("f").dispatch(3, out)
    return np.frombuffer(out, np.float32).tolist()


def test_files_of_named_folders_are_included(device, folder):
    assert run_included(device, folder) == [0, 2, 4]
    with pytest.raises(CompileError, match=r"twice\.h' file not found: a source includes the headers of Metal alone"):
        device.kernel(USES)


def test_a_name_may_lead_from_one_folder_into_another(device, folder):
    (folder / "attention").mkdir()  # of a source, without files that it includes
    device.kernel(USES.replace("<lib/twice.h>", '"../lib/twice.h"'), include=[folder, folder / "attention"])


def test_a_changed_file_is_compiled_again(device, folder):
    file = folder / "lib" / "factor.h"
    time = file.stat().st_mtime_ns
    assert run_included(device, folder) == [0, 2, 4]
    file.write_text("#pragma once\n#define FACTOR 3\n")
    os.utime(file, ns=(time, time))
    assert run_included(clang.Device(), folder) == [0, 3, 6]
    assert run_included(device, folder) == [0, 3, 6]


@pytest.mark.parametrize("name", ['"/etc/passwd"', "</etc/passwd>", "<../secret.h>", "<lib/../../secret.h>"])
def test_files_outside_of_the_folders_are_refused(device, folder, name):
    (folder / "inner" / "lib").mkdir(parents=True)
    (folder / "secret.h").write_text("#define SECRET 1\n")
    (folder / "inner" / "lib" / "twice.h").write_text(f"#include {name}\n")
    with pytest.raises(CompileError, match="file not found"):
        device.kernel(USES, include=[folder / "inner"])
    with pytest.raises(CompileError, match="file not found"):
        device.kernel(USES.replace("<lib/twice.h>", name), include=[folder / "inner"])
    (folder / "inner" / "lib" / "twice.h").unlink()
    (folder / "inner" / "lib" / "twice.h").symlink_to(folder / "secret.h")
    with pytest.raises(CompileError, match="file not found"):
        device.kernel(USES, include=[folder / "inner"])


def test_files_named_by_a_macro_are_refused(device, folder):
    with pytest.raises(CompileError, match="file not found"):
        device.kernel(USES.replace("#include <lib", "#define NAME <lib/twice.h>\n#include NAME //"), include=[folder])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("double twice(float x);", r"twice\.h:2:\d+: error: MSL has no type 'double'"),
        ("__attribute__((constructor)) void twice() {}", r"twice\.h:2:1: error: the attribute `constructor`"),
        ("#pragma comment(lib)", r"twice\.h:2:1: error: `#pragma comment"),
    ],
)  # fmt: skip
def test_included_files_are_checked(device, folder, text, message):
    (folder / "lib" / "twice.h").write_text(f"#pragma once\n{text}\n")
    with pytest.raises(CompileError, match=message):
        device.kernel(USES.replace("lib::twice(float(i))", "i"), include=[folder])


def test_vectors_of_a_type_parameter_in_included_files(device, folder):
    (folder / "lib" / "twice.h").write_text(
        "namespace lib { template <typename T> T turned(T a) { return T(-a.y, metal::max(a.x, 0.0f)); }\n"
        "inline float twice(float x) { return turned(float2(x, -x)).x + turned(float2(x, 0)).y; } }\n"
    )
    assert run_included(device, folder) == [0, 2, 4]


@pytest.mark.parametrize(
    ("include", "error", "message"),
    [
        ("folder", TypeError, "a sequence of folders"),
        (3, TypeError, "a sequence of folders"),
        (["/nowhere/at/all"], CompileError, "include='/nowhere/at/all' is not a folder"),
    ],
)
def test_illegal_folders(device, include, error, message):
    with pytest.raises(error, match=message):
        device.kernel(USES, include=include)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch, whose headers are read, is missing")
@pytest.mark.parametrize("name", ["utils", "reduction_utils", "atomic", "error", "special_math", "random"])
def test_headers_of_pytorch_compile(device, name):
    spec = importlib.util.find_spec("torch")
    folder = Path(spec.submodule_search_locations[0]) / "include"
    if not (folder / "c10" / "metal" / f"{name}.h").is_file():
        pytest.skip(f"this PyTorch has no c10/metal/{name}.h")
    source = USES.replace("lib/twice", f"c10/metal/{name}").replace("lib::twice", "")
    out = device.buffer(12)
    kernel = device.kernel(source, version="3.1", include=[folder], fast_math=False)
    kernel.function("f").dispatch(3, out)
    assert np.frombuffer(out, np.float32).tolist() == [0, 1, 2]
