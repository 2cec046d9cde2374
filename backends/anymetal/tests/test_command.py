"""The command ``anymetal``: list the kernels of a file, or run one."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib import metadata

import numpy as np
import pytest
from typer.testing import CliRunner

import shared
from anymetal import clang
from anymetal.command import app

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

SOURCE = """
#include <metal_stdlib>
using namespace metal;
constant bool doubled [[function_constant(3)]];
constant bool twice = is_function_constant_defined(doubled) && doubled;
constant int required [[function_constant(4)]];
kernel void axpy(device const float *x, device float *out, constant uint &n, uint i [[thread_position_in_grid]]) {
    if (i < n) out[i] += (twice ? 2 : 1) * x[i];
}
template <typename T> kernel void turn(device T *x [[buffer(0)]], threadgroup T *tile [[threadgroup(0)]],
                                       uint t [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
    tile[t] = x[t];
    BARRIER
    x[t] = tile[n - 1 - t];
}
template [[host_name("turn_float")]] kernel void turn<float>(device float *, threadgroup float *, uint, uint);
struct Row { uint n; float factor; };
kernel void rows(device half *y, constant Row &row, device int *counts [[buffer(4)]],
                 uint2 i [[thread_position_in_grid]], uint2 n [[threads_per_grid]]) {
    y[i.y * n.x + i.x] = half(row.factor) * half(row.n);
    if (i.x == 0) counts[i.y] = 7;
}
kernel void bits(device bfloat *y, uint i [[thread_position_in_grid]]) { y[i] = y[i] + y[i]; }
struct Pointers { device float *x; uint n; };
kernel void pointers(constant Pointers &p) { p.x[0] = p.n; }
kernel void last(device uint *y, uint i [[thread_position_in_grid]]) { y[0] = i; }
kernel void constants(device int *y) { y[0] = required; }
kernel void endless(device atomic_uint *y) { while (true) atomic_fetch_add_explicit(y, 1, memory_order_relaxed); }
"""
BARRIER = ("-D", "BARRIER=threadgroup_barrier(mem_flags::mem_threadgroup);")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function that runs a line in a folder with ``f.metal`` and ``x.npy``, and returns what it did."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.metal").write_text(SOURCE)
    np.save("x.npy", np.arange(10, dtype=np.float32))
    return lambda *line: CliRunner().invoke(app, ["f.metal", *BARRIER, *line])


def kernel(name, grid, *rest):
    return ("--kernel", name, "--grid", grid, *rest)


AXPY = kernel("axpy", "10", "--group", "4")
OUT, N = ("--buffer", "out:float32:10"), ("--bytes", "n:uint32=5")


def buffers(done):
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["buffers"]


def test_list(run):
    done = run()
    assert done.exit_code == 0
    assert done.stdout.splitlines()[:7] == [
        "axpy",
        "    buffer(0)       device const float *x",
        "    buffer(1)       device float *out",
        "    buffer(2)       constant uint &n",
        "turn_float",
        "    buffer(0)       device T *x",
        "    threadgroup(0)  threadgroup T *tile",
    ]
    listed = json.loads(run("--json").stdout)
    assert [one["name"] for one in listed] == [
        "axpy",
        "turn_float",
        "rows",
        "bits",
        "pointers",
        "last",
        "constants",
        "endless",
    ]
    assert listed[2]["arguments"][2] == {"index": 4, "kind": "buffer", "type": "device int *counts"}


def test_run(run):
    done = run(*AXPY, "--buffer", "x.npy", *OUT, *N, "--constant", "3=true")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        "kernel `axpy` ran 10 threads in threadgroups of 4, twice, in opposite orders with equal results, "
        "with all checks",
        "buffer(0) x (x.npy): float32 (10,), min 0 max 9 mean 4.5, 0 NaN, read only",
        "buffer(1) out (new, zeros): float32 (10,), min 0 max 8 mean 2, 0 NaN, 5 written, 4 of 10 elements changed",
        "buffer(2) n (uint32=5): uint32 (), min 5 max 5 mean 5, 0 NaN, read only",
    ]


# What is bound, and the results: the sum of x and the values of n, by the buffers that are reported.
BOUND = {
    "names in any order": (*N, *OUT, "--buffer", "x.npy"),
    "one in order": ("--buffer", "other.npy", *OUT, *N),
    "all in order": ("--buffer", "other.npy", "--buffer", "y:float32:10", "--bytes", "count:uint32=5"),
    "indices": ("--buffer", "1:float32:10", "--buffer", "0:other.npy", "--bytes", "2:uint32=5"),
    "a named file": (*OUT, "--buffer", "x=out.npy", *N),
    "Fortran order": (*OUT, "--buffer", "x=columns.npy", *N),
    "an axis more": ("--buffer", "out:float32:5,2", "--buffer", "x.npy", *N),
}


@pytest.mark.parametrize("name", BOUND)
def test_binding(run, name):
    for file in ("other.npy", "out.npy"):
        np.save(file, np.arange(10, dtype=np.float32))
    np.save("columns.npy", np.asfortranarray(np.arange(10, dtype=np.float32).reshape(2, 5)))
    x, out, n = buffers(run(*AXPY, *BOUND[name], "--json"))
    assert (x["max"], x["changed"], out["max"], out["changed"], n["max"]) == (9.0, None, 4.0, 4, 5)
    assert out["from"] == "new, zeros"


def test_fill_nan_and_infinity(run):
    _, out, _ = buffers(run(*AXPY, "--buffer", "x.npy", "--buffer", "out:float32:10=nan", *N, "--json"))
    assert (out["min"], out["nans"], out["changed"]) == (None, 10, 0)
    _, out, _ = buffers(run(*AXPY, "--buffer", "x.npy", "--buffer", "out:float32:10=-inf", *N, "--json"))
    assert (out["min"], out["mean"]) == ("-inf", "-inf")
    _, out, _ = buffers(run(*AXPY, "--buffer", "x.npy", "--buffer", "out:float32:10=1.5", *N, "--json"))
    assert (out["min"], out["max"], out["mean"]) == (1.5, 5.5, 2.5)


def test_struct_axes_and_gaps(run):
    row = ("--bytes", "row:uint32=3,float32=0.5")
    y, row, counts = buffers(
        run(
            *kernel("rows", "4,2", "--group", "2,2"), *row, "--buffer", "y:float16:8", "--buffer", "4:int32:2", "--json"
        )
    )
    assert (y["min"], y["max"], y["changed"], row["shape"], counts["index"], counts["min"]) == (1.5, 1.5, 8, [8], 4, 7)


def test_bfloat(run):
    (y,) = buffers(run(*kernel("bits", "4"), "--buffer", "y:bfloat16:4=1.5", "--save", ".", "--json"))
    assert (y["dtype"], y["min"], y["changed"]) == ("bfloat16", 3.0, 4)
    np.testing.assert_array_equal(np.load("y.npy"), np.full(4, 0x4040, np.uint16))


def test_threadgroup_memory_and_isolation(run, monkeypatch):
    np.save("x.npy", np.arange(10, dtype=np.float32))
    line = (*kernel("turn_float", "10"), "--buffer", "x.npy", "--threadgroup", "0:48")
    (x,) = buffers(run(*line, "--isolate", "--seconds", "20", "--json"))
    assert x["changed"] == 10
    monkeypatch.setenv("ANYMETAL_LAUNCH_MEMORY", "0")
    assert "ANYMETAL_LAUNCH_MEMORY='0' is not a number of MiB" in run(*line, "--isolate").stderr
    done = run("-D", "BARRIER=", *line)
    assert done.exit_code == 1
    assert "kernel `turn_float` gives a result that depends on the order of its threads" in done.stderr


def test_save(run, tmp_path):
    (tmp_path / "results").mkdir()
    line = (*AXPY, "--buffer", "x.npy", *OUT, *N, "--save", "results")
    assert run(*line).exit_code == 0
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["out.npy"]
    np.testing.assert_array_equal(np.load("results/out.npy"), [0, 1, 2, 3, 4, 0, 0, 0, 0, 0])
    before = (tmp_path / "x.npy").read_bytes()
    done = run(*kernel("turn_float", "10"), "--buffer", "x.npy", "--threadgroup", "0:48", "--save", ".")
    assert done.exit_code == 2
    assert "--save .: it would overwrite x.npy, an input" in done.stderr
    assert (tmp_path / "x.npy").read_bytes() == before


def test_one_order(run):
    done = run(*kernel("last", "64"), "--buffer", "y:uint32:1", "--one-order", "--unchecked")
    assert done.exit_code == 0
    assert "once, in one order" in done.stdout


def test_include_and_version(run, tmp_path):
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "one.h").write_text("constant int one = __METAL_VERSION__;\n")
    (tmp_path / "f.metal").write_text('#include "one.h"\nkernel void f(device int *y) { y[0] = one + N; }\n')
    line = ("--include", "headers", "-D", "N", "--metal", "3.2", "--buffer", "y:int32:1", "--json")
    (y,) = buffers(run(*kernel("f", "1"), *line))
    assert y["max"] == 321


def test_undefined_contents(run):
    """They are an error where the kernel reads them, and the results of one that writes them all."""
    done = run(*AXPY, "--buffer", "x.npy", "--buffer", "out:float32:10=undefined", *N)
    assert (done.exit_code, "before anything wrote it" in done.stderr) == (1, True)
    (y,) = buffers(run(*kernel("last", "1"), "--buffer", "y:uint32:1=undefined", "--json"))
    assert (y["from"], y["max"]) == ("new, undefined", 0)


def test_a_check_compiles_every_kernel(run, tmp_path):
    """What does not compile, or is used before it is set, is listed, in JSON and in SARIF; nothing runs."""
    invoke = CliRunner().invoke
    done = invoke(app, ["check", "f.metal", *BARRIER])
    assert done.exit_code == 1
    assert [line for line in done.stdout.splitlines() if ": compiled" in line or ": not" in line] == [
        f"{name}: {'not ' * (name == 'constants')}compiled"
        for name in ("axpy", "turn_float", "rows", "bits", "pointers", "last", "constants", "endless")
    ]
    assert "pass --constant required=VALUE [compile]" in done.stdout
    done = invoke(app, ["check", "f.metal", *BARRIER, "--constant", "required=2", "--json", "--sarif", "f.sarif"])
    about = json.loads(done.stdout)
    assert (done.exit_code, about["findings"]) == (0, [])
    assert about["kernels"][1] == {"name": "turn_float", "compiled": True}
    assert json.loads((tmp_path / "f.sarif").read_text())["runs"][0]["results"] == []
    (tmp_path / "g.metal").write_text("kernel void f(device int *y) { int a; y[0] = a; }\nkernel void g() { h(); }\n")
    done = invoke(app, ["check", "g.metal", "--sarif", "f.sarif"])
    (result,) = json.loads((tmp_path / "f.sarif").read_text())["runs"][0]["results"]
    assert (done.exit_code, result["ruleId"], "g.metal:2:19: error: " in done.stdout) == (1, "compile", True)
    (tmp_path / "g.metal").write_text("kernel void f(device int *y) { int a; y[0] = a; }\n")
    done = invoke(app, ["check", "g.metal"])
    assert (done.exit_code, "the variable a is used before it is set" in done.stdout) == (1, True)
    for line in (("no.metal",), ("g.metal", "--level", "compile=note"), ("g.metal", "--metal", "9")):
        assert invoke(app, ["check", *line]).exit_code == 2


FAILS = {
    "out of bounds": (
        (*kernel("axpy", "10"), "--buffer", "x.npy", "--buffer", "out:float32:4", *N),
        "4 bytes out of bounds",
    ),
    "a time limit": (
        (*kernel("endless", "1"), "--buffer", "y:uint32:1", "--seconds", "0.2"),
        "did not end within 0.2 seconds",
    ),
    "the order": ((*kernel("last", "64"), "--buffer", "y:uint32:1"), "if this is intended, use --one-order ("),
    "no constant": ((*kernel("constants", "1"), "--buffer", "y:int32:1"), "pass --constant required=VALUE"),
    "no length": ((*kernel("turn_float", "10"), "--buffer", "x.npy"), "--threadgroup 0:BYTES"),
    "a dtype": ((*AXPY, "--buffer", "x.npy", "--buffer", "out:int32:10", *N), "have the dtype float32, not int32"),
    "a version": (("--metal", "2.4"), "bfloat"),
    "an unknown constant": ((*AXPY, "--constant", "9=1", "--buffer", "x.npy", *OUT, *N), "no function constant 9"),
}


@pytest.mark.parametrize("name", FAILS)
def test_a_defect_has_the_status_1(run, name):
    line, message = FAILS[name]
    done = run(*line)
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr


WRONG = {
    "a kernel": (kernel("nothing", "10"), "--kernel nothing: f.metal has the kernels axpy, turn_float, rows"),
    "no kernel": (("--grid", "10"), "--grid is an option of a run: add --kernel, one of axpy"),
    "pointers": (
        kernel("pointers", "1", "--buffer", "x:float32:1"),
        "holds pointers, which no option binds: call it from",
    ),
    "no grid": (("--kernel", "axpy"), "--kernel needs --grid"),
    "grid": (kernel("axpy", "10,"), "--grid 10,: it is one to three integers from 1 to 2**32 - 1"),
    "grid 0": (kernel("axpy", "0"), "--grid 0: it is"),
    "grid 4": (kernel("axpy", "1,1,1,1"), "--grid 1,1,1,1: it is"),
    "group": (kernel("axpy", "1", "--group", "x"), "--group x: it is"),
    "a file": (kernel("axpy", "1", "--buffer", "no.npy"), "--buffer no.npy: [Errno 2]"),
    "no array": (kernel("axpy", "1", "--buffer", "text.npy"), "--buffer text.npy: "),
    "a form": (kernel("axpy", "1", "--buffer", "x"), "--buffer x: it is NAME:DTYPE:LENGTH"),
    "a dtype": (kernel("axpy", "1", "--buffer", "x:float:1"), "'float' is no dtype; there are int8, uint8"),
    "a length": (kernel("axpy", "1", "--buffer", "x:int8:-1"), "its length -1: it is one to three integers"),
    "a huge length": (kernel("axpy", "1", "--buffer", "x:int8:4000000000,4000000000"), "--buffer x:int8:4000000000"),
    "a value": (kernel("axpy", "1", "--buffer", "x:int8:1=200"), "its type is int8, from -128 to 127, not 200"),
    "no number": (kernel("axpy", "1", "--buffer", "x:int8:1=one"), "'one' is no number"),
    "bytes": (kernel("axpy", "1", "--bytes", "n=5"), "--bytes n=5: it is NAME:DTYPE=VALUE"),
    "bytes of float": (kernel("axpy", "1", "--bytes", "n:uint32=0.5"), "its type is uint32, not 0.5"),
    "twice": (
        (*AXPY, *OUT, "--buffer", "1:int8:1"),
        "1:int8:1: --buffer out:float32:10 is bound to `device",
    ),
    "an index": (
        (*AXPY, "--buffer", "7:int8:1"),
        "kernel `axpy` has no buffer(7): buffer(0) is `device",
    ),
    "too many": (
        (*AXPY, *OUT, *N, "--buffer", "x.npy", "--buffer", "z:int8:1"),
        "z:int8:1: kernel `axpy` has no buffer",
    ),
    "unbound": ((*AXPY, "--buffer", "x.npy", *OUT), "buffer(2), `constant uint &n`: add --bytes n:uint32=VALUE"),
    "memory unbound": ((*AXPY, "--buffer", "x.npy", *N), "`device float *out`: add --buffer out:float32:LENGTH"),
    "constant": (("--constant", "true"), "--constant true: it is INDEX=VALUE"),
    "threadgroup": (kernel("turn_float", "1", "--threadgroup", "64"), "--threadgroup 64: it is INDEX:BYTES"),
    "macro": (("-D", "1N=2"), "-D 1N=2: "),
    "version": (("--metal", "9"), "--metal 9: the versions of MSL are 2.3, 2.4"),
    "runtime": (("--runtime", "opencl"), "--runtime opencl: the runtimes are clang, cuda, metalcompute"),
    "no such GPU": (("--runtime", "metalcompute"), "--runtime metalcompute: the metal runtime needs macOS"),
    "include": (("--include", "x.npy"), "--include x.npy: there is no such folder"),
    "save": ((*AXPY, "--save", "nowhere"), "--save nowhere: there is no such folder: make it, mkdir -p nowhere"),
    "suppress": ((*AXPY, "--suppress", "x.toml"), "--suppress x.toml: suppress='x.toml': [Errno 2]"),
    "seconds": ((*AXPY, "--seconds", "0"), "--seconds 0.0: seconds=0.0 is not a number of seconds above 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_option_has_the_status_2(run, tmp_path, name):
    (tmp_path / "text.npy").write_text("no array")
    line, message = WRONG[name]
    done = run(*line)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_constant_by_name(run):
    (y,) = buffers(run(*kernel("constants", "1"), "--constant", "required=-7", "--buffer", "y:int32:1", "--json"))
    assert y["min"] == -7


def test_large_integers(run):
    done = run(*kernel("constants", "1"), "--constant", "4=16777217", "--buffer", "y:int32:1")
    assert "min 16777217 max 16777217" in done.stdout


def test_both_ways_to_start_it(run):
    project = tomllib.loads((shared.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert metadata.EntryPoint("anymetal", project["scripts"]["anymetal"], "console_scripts").load() is app
    line = [sys.executable, "-m", "anymetal", "f.metal", *BARRIER, "--kernel", "nothing"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=shared.environment())
    assert (done.returncode, done.stderr[:28]) == (2, "anymetal: --kernel nothing: ")


def test_a_missing_file():
    done = CliRunner().invoke(app, ["nowhere.metal"])
    assert done.exit_code == 2
    assert "FILE nowhere.metal: there is no such file" in done.stderr


# ------------------------------------------------------------------------------------------------ other runtimes


def test_cuda(run, fake_cuda, tmp_path):
    line = (*kernel("axpy", "10", "--group", "4"), "--buffer", "x.npy", *OUT, "--bytes", "n:uint32=7")
    checked, done = (run(*line, "--runtime", name, "--json") for name in ("clang", "cuda"))
    assert done.exit_code == 0, done.stderr
    about, expected = json.loads(done.stdout), json.loads(checked.stdout)
    assert (about["runtime"], about["checked"], about["orders"], about["findings"]) == ("cuda", False, 1, [])
    for one in expected["buffers"]:
        one["elements_written"] = None
    assert about["buffers"] == expected["buffers"]
    assert [line.split(" on ")[0] for line in fake_cuda.history if line.startswith("launch")] == [
        "launch axpy (2, 1, 1)x(4, 1, 1)", "launch axpy (1, 1, 1)x(2, 1, 1)"
    ]  # fmt: skip
    done = run(*line, "--runtime", "cuda")
    assert "kernel `axpy` ran 10 threads in threadgroups of 4, on cuda, without checks\n" in done.stdout


def test_arithmetic_is_that_of_the_options(run, tmp_path):
    """A subnormal number, and a comparison that is true of NaN alone, which fast math takes for false."""
    head = "#include <metal_stdlib>\nkernel void f(device float *y, constant float &x) {"
    (tmp_path / "f.metal").write_text(f"{head} y[0] = x != x ? 1.0f : x * 0.5f; }}")

    def found(value, *line):
        done = run("--kernel", "f", "--grid", "1", "--buffer", "y:float32:1=7", "--bytes", f"x:float32={value}", *line)
        assert done.exit_code == 0, done.stderr
        return "min 0 max 0" in done.stdout, "min 1 max 1" in done.stdout

    assert found("1.2e-38") == (False, False)
    assert found("1.2e-38", "--flush-denormals") == (True, False)
    assert found("nan") == (False, True)
    assert found("nan", "--fast-math") == (False, False)


def test_threadgroup_memory_on_cuda(run, fake_cuda):
    line = kernel("turn_float", "8", "--group", "8", "--threadgroup", "0:32", "--buffer", "x:float32:8=3")
    done = run(*line, "--runtime", "cuda")
    assert (done.exit_code, done.stderr) == (0, "")
    done = run(*kernel("turn_float", "8", "--buffer", "x:float32:8=3", "--runtime", "cuda"))
    assert (done.exit_code, "needs a length in bytes" in done.stderr) == (1, True)


def test_what_cuda_does_not_have(run, fake_cuda):
    options = ("--one-order", "--isolate", "--unchecked", "--seconds 3", "--level overflow=off", "--lockstep off")
    options += ("--flush-denormals",)
    for option in options:
        done = run(*AXPY, "--runtime", "cuda", *option.split())
        assert done.exit_code == 2
        assert f"--runtime cuda: {option.split()[0]} is an option of the clang runtime" in done.stderr
    done = run(*kernel("pointers", "1", "--buffer", "x:float32:1", "--runtime", "cuda"))
    assert (done.exit_code, "struct with pointers or a tensor as a parameter" in done.stderr) == (1, True)


EXACT = """#include <metal_stdlib>
[[max_total_threads_per_threadgroup(64)]] kernel void add(device const float *x, device float *y, constant float &a,
                                                          uint i [[thread_position_in_grid]]) { y[i] = x[i] + a; }
kernel void any(device float *y, uint i [[thread_position_in_grid]]) { y[i] = 1; }"""


def test_metalcompute(run, fake, tmp_path):
    (tmp_path / "f.metal").write_text(EXACT)
    np.save("x.npy", np.arange(128, dtype=np.float32))
    line = ("--metal", "2.3", "--runtime", "metalcompute", "--buffer", "x.npy", "--buffer", "y:float32:128",
            "--bytes", "a:float32=0.5", "--save", ".")  # fmt: skip
    done = CliRunner().invoke(app, ["f.metal", *kernel("add", "128", "--group", "64"), *line])
    assert (done.exit_code, done.stderr) == (0, "")
    np.testing.assert_array_equal(np.load("y.npy"), np.arange(128) + np.float32(0.5))
    for grid, group in (("100", "64"), ("128", "32")):
        done = CliRunner().invoke(app, ["f.metal", *kernel("add", grid, "--group", group), *line])
        assert done.exit_code == 1
        assert "metalcompute runs whole threadgroups of the size that [[max_total_threads_per_threadgroup(N)]]" in (
            done.stderr
        )
    done = CliRunner().invoke(
        app, ["f.metal", *kernel("any", "64"), *line[:4], "--buffer", "y:float32:64", "--group", "64"]
    )
    assert (done.exit_code, "which must be 64" in done.stderr) == (1, True)
    done = CliRunner().invoke(app, ["f.metal", "--runtime", "metalcompute"])
    assert (done.exit_code, "metalcompute compiles MSL 2.3" in done.stderr) == (1, True)


def test_help_has_the_name_of_the_table_in_brackets():
    assert "[[suppress]]" in CliRunner().invoke(app, ["--help"]).stdout


IMAGES = """
#include <metal_stdlib>
using namespace metal;
kernel void shrink(texture2d<float> x, sampler s, texture2d<float, access::write> y,
                   uint2 at [[thread_position_in_grid]]) {
    y.write(x.sample(s, (float2(at) + 0.5f) / float2(y.get_width(), y.get_height())), at);
}
"""


def test_textures_of_files(tmp_path, monkeypatch):
    """PNG and .npy in, PNG and .npy out; what cannot be read or does not fit is a sentence."""
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install pillow")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.metal").write_text(IMAGES)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3)).astype(np.uint8)
    pillow.fromarray(pixels).save("in.png")
    line = (
        "g.metal",
        "--kernel",
        "shrink",
        "--grid",
        "3,2",
        "--texture",
        "y:rgba8unorm:3x2",
        "--sampler",
        "filter=linear",
    )
    done = CliRunner().invoke(app, [*line, "--texture", "in.png", "--save", "."])
    assert done.exit_code == 0, done.output
    assert "texture(1) y (new, zeros): rgba8unorm (2, 3, 4)" in done.stdout
    result = np.asarray(pillow.open("y.png"))
    np.testing.assert_array_equal(result, np.load("y.npy"))
    mean = pixels.reshape(2, 2, 3, 2, 3).mean((1, 3))
    assert abs(result[..., :3].astype(float) - mean).max() <= 1
    (tmp_path / "wrong.png").write_bytes(b"no picture")
    for more, message in (
        (("--texture", "wrong.png"), "wrong.png is no PNG that can be read"),
        (("--texture", "missing.npy"), "missing.npy cannot be read"),
        (("--texture", "x:rgb8:4x4"), "format='rgb8': the formats are those of MTLPixelFormat"),
        (("--texture", "x"), "--texture x: it is FILE.png, FILE.npy"),
        (("--texture", "in.png", "--texture", "in.png"), "the kernel has no texture left for it"),
        (("--texture", "7=in.png"), "texture(7) does not exist"),
        (("--sampler", "lod=1"), "--sampler lod=1: its names are filter, coord"),
        ((), "texture(0) is not bound"),
    ):
        done = CliRunner().invoke(app, [*line, *more])
        assert done.exit_code in (1, 2)
        assert message in done.output, done.output
