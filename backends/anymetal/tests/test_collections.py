"""The scripts that count the kernels of collections, and compare them with a metallib."""

from __future__ import annotations

import importlib
import re
import struct
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import anymetal
from anymetal import clang
from anymetal.frontend.options import Options
from anymetal.frontend.program import checked
from anymetal.frontend.toolchain import find
from published import collection as published
from published import oracles

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

SOURCE = """
#include <metal_stdlib>
using namespace metal;
struct Row { float3 a; uint n; };
template <class T> T wrong(T x) { return no_such_function(x); }
template <class T, int N> [[kernel]] void f(device T *x) { if constexpr (N == 2) x[0] = wrong(x[0]); else x[0] = N; }
#define F(N) template [[host_name("f" #N)]] [[kernel]] void f<float, N>(device float *);
F(1) F(2) F(3) F(4) F(5)
kernel void g(const device Row *x [[buffer(3)]], constant ulong &n [[buffer(1)]], threadgroup half *t) { t[0] = n; }
kernel void h(float4 x [[stage_in]]) {}
"""
AIR = """
define void @g(ptr addrspace(1) %x, ptr addrspace(2) %n, ptr addrspace(3) %t) {{ ret void }}
!air.kernel = !{{!0}}
!0 = !{{ptr @g, !1, !2, !7}}
!1 = !{{}}
!2 = !{{!3, !4, !5, !6}}
!3 = !{{i32 0, !"air.buffer", !"air.location_index", i32 3, i32 1, !"air.read", !"air.address_space", i32 1, {struct}
        !"air.arg_type_size", i32 {bytes}, !"air.arg_type_align_size", i32 16, !"air.arg_type_name", !"Row"}}
!4 = !{{i32 1, !"air.buffer", !"air.buffer_size", i32 8, !"air.location_index", i32 1, i32 1, !"air.read",
        !"air.address_space", i32 2, !"air.arg_type_size", i32 8, !"air.arg_type_align_size", i32 8}}
!5 = !{{i32 2, !"air.buffer", !"air.location_index", i32 {local}, i32 1, !"air.read_write", !"air.address_space", i32 3,
        !"air.arg_type_size", i32 2, !"air.arg_type_align_size", i32 2}}
!6 = !{{i32 3, !"air.thread_position_in_grid", !"air.arg_type_name", !"uint"}}
!7 = !{{!"air.max_work_group_size", i32 64}}
"""


@pytest.fixture
def scripts(monkeypatch):
    """The two scripts as modules."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "scripts"))
    for name in ("msl_collections", "msl_metallib"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("msl_collections"), importlib.import_module("msl_metallib")


def program(text=SOURCE):
    options = Options.of("3.2", (), False)
    return find(), options, checked(find(), text, options)


def test_kernels_that_the_compiler_rejects(scripts):
    text = SOURCE.replace("kernel void h(float4 x [[stage_in]]) {}", "")
    toolchain, options, known = program(text)
    front = scripts[0].Front(toolchain, options, known, {})
    failed = {kernel.name: scripts[0].cause(why) for kernel, why in front.failed(list(known.kernels.values()))}
    assert failed == {"f2": "use of undeclared identifier 'no_such_function'"}


WRITTEN = """
template <class T> [[kernel]] void f(device T *x) {}
template <class T> kernel void g(device T *x) {}  // kernel void no(
template [[host_name("g1")]] kernel void g<int>(device int *);
template [[host_name("g2")]] [[kernel]] decltype(g<vec<float, 2>>) g<vec<float, 2>>;
#define H(NAME, T) kernel void NAME(device T *x) {} \\
                   [[kernel, max_total_threads_per_threadgroup(32)]] void NAME##_s(device T *x) {}
#define HS(NAME) H(NAME##_int, int) H(NAME##_float, float)
HS(h)
/* kernel void no() */ kernel void i(device int *x) {}
"""


def test_functions_are_counted_where_they_are_written(scripts):
    """Instantiations are of one function, and so are the functions of a macro."""
    _, options, checked_program = program(WRITTEN)
    found = scripts[0].functions(WRITTEN, options)
    assert found.keys() == {"f", "g", "h_int", "h_int_s", "h_float", "h_float_s", "i"}
    assert len(set(found.values())) == 5
    assert found["h_int"] == found["h_float"] != found["h_int_s"] == found["h_float_s"]
    assert {name: one.function for name, one in checked_program.kernels.items()} == {
        "g1": "g", "g2": "g", "h_int": "h_int", "h_int_s": "h_int_s", "h_float": "h_float", "h_float_s": "h_float_s",
        "i": "i",
    }  # fmt: skip
    assert scripts[0].functions(WRITTEN, None).keys() >= {"f", "g", "i"}
    library = anymetal.compile(WRITTEN)
    assert library.functions["g2"] == "g"


@pytest.mark.parametrize(
    ("parameters", "is_launched"),
    [
        ("constant uint &n", True), ("constant ulong &m, constant uint &n", False), ("constant float &n", False),
        ("constant Row &n", False), ("constant uint &n, device uint *z", False), ("device const float4 *z", True),
    ],
)  # fmt: skip
def test_launches_without_a_host(scripts, parameters, is_launched):
    text = SOURCE.partition("template")[0]
    text += f"""
    kernel void k(device const half *x, device float *y, {parameters}, uint i [[thread_position_in_grid]])
    {{ y[i] = x[i]; {"y[i] += z[i].w;" if "float4" in parameters else ""} }}
    kernel void wrong(device const int *x, device int *y, constant uint &n, uint i [[thread_position_in_grid]])
    {{ y[i] = x[i + n / 33]; }}"""
    library, launched = anymetal.compile(text, levels={"unread": "off"}), scripts[0].launched
    assert launched(library["k"], 33) == (() if is_launched else None)
    assert [bool(launched(library["wrong"], length)) for length in (31, 33)] == [False, True]


def metallib(path, **functions):
    """Write a metallib of the published layout."""
    rows, codes = b"", b"pad "
    for name, code in functions.items():
        tags = {b"NAME": name.encode() + b"\0", b"OFFT": struct.pack("<3Q", 0, 0, len(codes))}
        tags[b"MDSZ"] = struct.pack("<Q", len(code))
        row = b"".join(tag + struct.pack("<H", len(value)) + value for tag, value in tags.items()) + b"ENDT"
        rows, codes = rows + struct.pack("<I", len(row) + 4) + row, codes + code
    data = bytearray(b"MTLB".ljust(0x60, b"\0") + struct.pack("<I", len(functions)) + rows)
    struct.pack_into("<Q", data, 0x18, 0x60)
    struct.pack_into("<Q", data, 0x48, len(data))
    struct.pack_into("<Q", data, 0x10, len(data) + len(codes))
    path.write_bytes(data + codes)


@pytest.mark.parametrize(
    ("planted", "message"),
    [({}, None), ({"bytes": 16}, "bytes"), ({"local": 1}, "index"), ({"struct": '!"air.struct_type_info", !1,'}, None)],
)
def test_comparison_with_a_metallib(scripts, tmp_path, planted, message):
    llvm = pytest.importorskip("llvmlite.binding")
    text = AIR.format(**{"bytes": 32, "local": 0, "struct": ""} | planted)
    code = llvm.parse_assembly(text).as_bitcode()
    metallib(tmp_path / "a.metallib", other=b"not read", g=code)
    library = scripts[1].Metallib(tmp_path / "a.metallib")
    assert list(library.functions) == ["other", "g"]
    toolchain, options, known = program(SOURCE.replace("kernel void h(float4 x [[stage_in]]) {}", ""))
    front = scripts[1].Compared(toolchain, options, known, {})
    front.apple = {"g": library.arguments("g")}
    failed = [why for _, why in front.failed([known.kernels["g"]])]
    assert len(failed) == (message is not None)
    assert not message or f": {message}" in failed[0].splitlines()[0]


def test_another_file_is_no_metallib(scripts, tmp_path):
    (tmp_path / "a").write_bytes(b"text")
    with pytest.raises(ValueError, match="has no metallib, which begins with MTLB"):
        scripts[1].Metallib(tmp_path / "a")


class Made(published.Collection):
    """A collection of two kernels."""

    name, marker, package, off = "made", "made.metal", "none", 0

    def scale(self, x, by, kernel="scale", constants=None):
        self.launch(self.marker_file, kernel, (x.size,), (32,), x, np.float32(by), whole=False, constants=constants)


MADE = """#include <metal_stdlib>
using namespace metal;
constant bool halves [[function_constant(7)]];
kernel void scale(device float *x [[buffer(0)]], constant float &by [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) { x[i] *= halves ? by / 2 : by; }
"""


def scaled(made, draw):
    n, by, is_other = draw.number(1, 40), draw.choice(2, 3), draw.choice(True, False)
    x = np.ones(n, np.float32)
    if by == 3:
        raise published.Absent("scale_by_three")
    made.scale(x, by, constants={7: is_other, 8: False})
    return published.Compared(x, np.full(n, by / (1 + is_other) + made.off))


def other(made, draw):
    made.launch("#include <none.h>\nkernel void f() {}", "f", (1,), (1,))


@pytest.fixture
def made(tmp_path):
    path = tmp_path / "made.metal"
    path.write_text(MADE)
    return Made(path)


def test_what_a_version_lacks_is_left_out(made):
    outcome = published.examine(made, scaled, 20)
    assert outcome.difference is None
    assert outcome.absent == {"scale_by_three"}
    assert made.launches["scale"] > 3
    assert published.examine(made, other, 3).absent == {"none.h"}
    made.off = 1
    assert "element [0] is" in published.examine(made, scaled, 20).difference
    with pytest.raises(published.Absent, match="function constant 8"):
        made.scale(np.ones(3, np.float32), 1, constants={7: False, 8: True})


def test_what_is_drawn(made, scripts, monkeypatch):
    module = types.SimpleNamespace(CASES={"scaled": scaled}, FINDINGS={}, FILES={}, HOST={"scaled": "any n"})
    made.dry = True
    values = published.drawn(module, made, 60)["scaled"]
    assert values["by"] == {2, 3}
    assert len(values["n"]) > 5
    assert values["n"] <= set(range(1, 41))
    assert published.shown({5, 2}) == "2, 5"
    assert published.shown(set(range(1000, 1020))) == "1,000 to 1,019 (20 values)"
    assert published.shown({"gemv<float, 3>"}) == ""
    assert published.shown({"", "a"}) == "none, a"
    monkeypatch.setattr(published, "modules", lambda: {"made": module})
    monkeypatch.setattr(published, "kind_of", lambda _: Made)
    head, row = list(scripts[0].draws([made.marker_file.parent], 60))
    assert head.startswith("| collection | case | what is drawn")
    assert re.fullmatch(r"\| made \| `scaled` \| n: 1 to [34].*; by: 2, 3; is_other: False, True \| any n \|", row)


def test_sizes_whose_positions_round():
    pairs = oracles.rounded_sizes("nearest2d")
    assert (26, 22) in pairs  # of 26 pixels the 11th of 22 is the 13th, and 26 / 22 in float32 is less
    assert len(pairs) == 15
    assert len(oracles.rounded_sizes("nearest_exact2d")) == 56
