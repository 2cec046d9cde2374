"""Kernels of published collections, launched as their hosts do, against NumPy and under all checks."""

from __future__ import annotations

import fnmatch
import re
from types import SimpleNamespace

import numpy as np
import pytest

import anymetal
from anymetal import clang
from published import collection, ggml, pytorch
from published.collection import Collection, Compared, Draw, Outcome, examine, find, missing, unseen
from shared import few

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

MODULES = {name: (module, collection.kind_of(module)) for name, module in collection.modules().items()}
CASES = [(name, case) for name, (module, _) in MODULES.items() for case in module.CASES]
FINDINGS = [(name, case) for name, (module, _) in MODULES.items() for case in module.FINDINGS]
LONG = "mlx", "gather_mm of a batch in reverse order"
"""A finding that takes 13 seconds."""
EXAMPLES, OF_A_FINDING = 2, 12
"""Launches of a case: the command tries 8 by default, each with another instantiation."""


def opened(name, case):
    module, kind = MODULES[name]
    if reason := missing(kind):
        pytest.skip(reason)
    made = kind(find(kind), keeps_on=True)
    if file := collection.lacking(module, made, case):
        pytest.skip(f"{file} is in the repository of {kind.name} only, and not in {made.marker_file.parent}")
    return module, made


@pytest.mark.parametrize(("name", "case"), CASES)
def test_kernels(name, case):
    module, opened_collection = opened(name, case)
    outcome = examine(opened_collection, module.CASES[case], EXAMPLES)
    assert outcome.difference is None
    assert outcome.kernels
    assert not list(unseen(outcome.reports, module.REVIEWED))


@pytest.mark.parametrize(("name", "case"), few(sorted(FINDINGS, key=LONG.__eq__), len(FINDINGS) - 1))
def test_findings_are_live(name, case):
    """A finding that is gone was repaired: remove it, or move it to the cases."""
    module, opened_collection = opened(name, case)

    def ended(opened_collection, draw):
        """Run the case, and fail after a report: further launches compile other kernels for nothing."""
        compared = module.FINDINGS[case][0](opened_collection, draw)
        assert not list(unseen(opened_collection.reports, module.REVIEWED))
        return compared

    assert examine(opened_collection, ended, OF_A_FINDING, shrink=False).difference is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (module, _) in MODULES.items() if hasattr(module, "NOT_RUN")])
def test_every_function_is_run_or_has_a_reason(name):
    """Of collections that packages have whole: the cases would launch each function, or ``NOT_RUN`` says why not."""
    module, made = opened(name, "")
    made = type(made)(made.marker_file, dry=True)
    reasons = collection.without_launch(module, made)
    reached = collection.kernels_to_run(module, made, 60)
    assert not made.written().keys() - reached - reasons.keys()
    assert not reached & reasons.keys()
    assert len(reasons) < 0.25 * len(made.written())
    assert all(fnmatch.filter(reasons, pattern) for pattern in module.NOT_RUN)


# --- the engine, on a collection of its own ---------------------------------------------------------------------------

HEADER = """
typedef struct {
    int32_t  n;      // elements
    uint64_t stride; const float factor;
    float o[2];
} small_args;
struct Other { const int M; const int N; const int64_t pad; };
"""
KERNEL = """#include <metal_stdlib>
using namespace metal;
struct Arguments { int n; ulong stride; float factor; float o[2]; };
kernel void scaled(constant Arguments &args, device const float *x, device float *y,
                   threadgroup float *part [[threadgroup(0)]], uint i [[thread_position_in_threadgroup]]) {
    part[i] = args.factor * x[i * args.stride];
    BARRIER
    y[i] = part[args.n - 1 - i] + args.o[1];
}
"""


class Small(Collection):
    name, marker, package, version = "small", "small/args.h", "nothing", "3.1"

    def scaled(self, x, factor, barrier):
        members = collection.members(self.marker_file.read_text(), "small_args")
        values = {"n": x.size, "stride": x.strides[0] // 4, "factor": factor, "o": [0, 1]}
        out = collection.blank(x.shape)
        arguments = collection.record(members, values)
        source = KERNEL.replace("BARRIER", barrier)
        local = {0: -(-4 * x.size // 16) * 16}
        self.launch(source, "scaled", (1, 1, 1), (x.size, 1, 1), arguments, collection.at(x), out, local=local)
        return out


RIGHT = "threadgroup_barrier(mem_flags::mem_threadgroup);"


@pytest.fixture
def small(tmp_path):
    (tmp_path / "small").mkdir()
    (tmp_path / "small/args.h").write_text(HEADER)
    found = find(Small, [tmp_path])
    assert found == tmp_path / "small/args.h"
    return lambda **options: Small(found, **options)


def scaled(factor=2.0, barrier=RIGHT):
    def case(small, draw: Draw):
        x = draw.array(2 * draw.number(2, 40), kind="plain")[:: draw.choice(1, 2)]
        return Compared(small.scaled(x, factor, barrier), 2 * x[::-1].astype(np.float64) + 1, 1e-6)

    return case


def test_structs_of_pytorch(tmp_path):
    path = tmp_path / pytorch.Pytorch.marker
    path.parent.mkdir(parents=True)
    header = """#pragma once
    template <unsigned N = 5, typename idx_t = int32_t>
    struct Params { int32_t dims; ::c10::metal::array<idx_t, N> sizes; ::c10::metal::array<float, N - 2> scales; bool a;
    #ifndef __METAL_VERSION__
      Params() { a = true; }
    #endif
    };"""
    path.with_name("A.h").write_text(header)
    values = {"dims": 1, "sizes": [1, 2, 3, 4], "scales": [0.5, 1], "a": True}
    made = pytorch.Pytorch(path).struct("A.h", "Params", {"idx_t": "uint64_t"}, 4, values)
    assert made.dtype.fields["sizes"] == (np.dtype(("u8", 4)), 8)
    assert (made.nbytes, made["scales"][0].tolist(), made["a"][0]) == (56, [0.5, 1], True)


def test_positions_of_pytorch():
    """Of 2 elements 4: those of ``torch.nn.functional.interpolate``."""
    nearest = pytorch.positions(2, 4, "nearest2d", align_corners=False)
    assert nearest.argmax(1).tolist() == [0, 0, 1, 1]
    linear = pytorch.positions(2, 4, "bilinear2d", align_corners=False)
    np.testing.assert_allclose(linear @ [0, 1], [0, 0.25, 0.75, 1], atol=1e-7)
    np.testing.assert_allclose(pytorch.positions(2, 4, "bicubic2d", align_corners=True).sum(1), 1, atol=1e-7)


def test_random_numbers_of_philox():
    """The known answers of Random123 for zeros, and for all bits set in the key and the upper counters."""
    zeros = pytorch.philox(0, 0, 1, 10)[0]
    assert [int(one) for one in zeros] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_structs_of_a_header():
    assert collection.members(HEADER, "small_args") == [
        ("n", "int32_t", 0), ("stride", "uint64_t", 0), ("factor", "float", 0), ("o", "float", 2),
    ]  # fmt: skip
    assert [one[0] for one in collection.members(HEADER, "Other")] == ["M", "N", "pad"]
    made = collection.record(collection.members(HEADER, "small_args"), {"n": 1, "stride": 2, "factor": 3, "o": [4, 5]})
    assert (made.nbytes, made.dtype.fields["stride"][1]) == (32, 8)
    with pytest.raises(ValueError, match="no struct absent"):
        collection.members(HEADER, "absent")


def test_a_right_kernel(small):
    outcome = examine(small(), scaled(), 10)
    assert outcome == Outcome(10, None, frozenset({"scaled"}), [])


def test_functions_of_launches(small):
    made = small()
    examine(made, scaled(), 2)
    assert made.functions == {"scaled"}


def test_a_function_without_a_launch(small):
    made = small(dry=True)
    assert examine(made, scaled(factor=2.5), 3) == Outcome(3, None, frozenset({"scaled"}), [])
    assert made.functions == {"scaled"}
    module = SimpleNamespace(CASES={"scaled": scaled()}, FINDINGS={}, NOT_RUN={"sc*": "why"})
    assert collection.functions(KERNEL, None).keys() == {"scaled"}
    made.written = lambda: {"scaled": 0, "other": 1}
    assert collection.without_launch(module, made) == {"scaled": "why"}


def test_a_wrong_result_is_shrunk(small):
    outcome = examine(small(), scaled(factor=2.5), 10)
    assert re.match(r"element \[\d+\] is .*, not ", outcome.difference)
    assert "Draw 1: 2" in outcome.difference


def test_a_report_does_not_hide_the_results(small):
    made = small(keeps_on=True)
    outcome = examine(made, scaled(barrier="threadgroup_barrier(mem_flags::mem_none);"), 10)
    assert outcome.difference is None
    assert {one.kind for _, one in outcome.reports} == {"fence"}
    assert list(unseen(outcome.reports, {("other", "fence"): ""}))
    assert not list(unseen(outcome.reports, {("scal", "fence"): ""}))
    outcome = examine(small(), scaled(barrier="threadgroup_barrier(mem_flags::mem_none);"), 10)
    assert "fence" in outcome.difference


def test_reports_that_were_looked_at():
    reviewed = {("f", "race"): "", ("f_big", "race"): "", ("", "fence"): "", ("g", "race"): ""}
    assert collection.unused(reviewed, [("f_1", "race"), ("h", "fence")]) == [("f_big", "race"), ("g", "race")]


def test_another_seed_draws_other_arguments(small):
    drawn = []

    def case(made, draw):
        drawn.append(draw.number(0, 10**6))
        return Compared(np.zeros(1), np.zeros(1))

    runs = []
    for seed in (None, None, 1, 1, 2):
        examine(small(), case, 5, seed)
        runs.append(tuple(drawn))
        drawn.clear()
    assert runs[0] == runs[1]
    assert runs[2] == runs[3]
    assert len(set(runs)) == 3


@pytest.mark.parametrize(
    "view", [lambda x: x[::-1], lambda x: x.T[1:], lambda x: x[::2, ::-2], lambda x: np.broadcast_to(x[:1], x.shape)]
)
def test_views_are_bound_at_their_first_element(view):
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for array in (x, np.asfortranarray(x)):
        memory, offset = collection.owner(view(array))
        assert memory[offset : offset + 4].view(np.float32)[0] == view(array).flat[0]
        assert offset + 4 <= memory.size


@pytest.mark.parametrize(
    ("how", "rows", "strides"),
    [
        ("contiguous", True, [4, 1]), ("repeated", True, [0, 1]), ("every other", True, [8, 1]),
        ("transposed", True, [4, 1]), ("reversed", True, [-4, 1]), ("every other", False, [8, 2]),
        ("transposed", False, [1, 3]),
    ],
)  # fmt: skip
def test_drawn_views(how, rows, strides):
    answers = iter([how, 5])
    view = Draw(lambda _: next(answers)).strided(3, 4, rows=rows, kind="plain", signed=True)
    assert (view.shape, collection.steps(view)) == ((3, 4), strides)
    plain = np.random.default_rng(5).standard_normal(48).astype(np.float32)
    assert view[0, 0] == (plain[8] if how == "reversed" else plain[0])


@pytest.mark.parametrize(
    ("got", "expected", "bound", "is_same"),
    [
        ([np.nan], [np.nan], 0, True), ([np.inf], [np.inf], 0, True), ([np.nan], [1], 1e9, False),
        ([1], [np.nan], 1e9, False), ([np.inf], [1], 1e9, False), ([1.1], [1], 0.2, True), ([1.1], [1], 0.05, False),
        ([1, 2], [1], 0, False),
    ],
)  # fmt: skip
def test_comparison(got, expected, bound, is_same):
    assert (Compared(np.array(got), np.array(expected), bound).difference() is None) == is_same


def test_a_collection_is_one_module():
    assert MODULES.keys() >= {"candle", "ggml", "mlx", "pytorch", "torch_headers"}
    assert MODULES.keys() >= {"harbeth", "metal_tools", "paddle_lite", "pytorch_mobile"}
    for module, kind in MODULES.values():
        assert issubclass(kind, Collection)
        assert {"CASES", "FINDINGS", "REVIEWED"} <= vars(module).keys()


def test_a_missing_collection_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("ANYMETAL_COLLECTIONS", str(tmp_path))
    expected = "the files of small are not here: nothing, in a folder that ANYMETAL_COLLECTIONS or --checkout names"
    assert missing(Small) == expected


@pytest.mark.parametrize("kind", ["q4_0", "q8_0", "q4_K", "q6_K"])
def test_blocks(kind):
    """The elements of a block, one at a time as the format is documented, against those of whole arrays."""
    per, size = ggml.BLOCKS[kind]
    data = np.random.default_rng(1).integers(0, 256, (2, size), np.uint8)
    where = {"q4_0": [0], "q8_0": [0], "q4_K": [0, 2], "q6_K": [208]}[kind]
    for first in where:
        data[:, first : first + 2] = np.array([0.5], np.float16).view(np.uint8)
    elements = ggml.dequantized(data.reshape(1, -1), kind).reshape(2, per)
    byte = [[int(one) for one in row] for row in data]

    def signed(value):
        return value - 256 if value > 127 else value

    def element(block, i):
        if kind == "q4_0":
            return 0.5 * ((block[2 + i % 16] >> 4 * (i // 16) & 15) - 8)
        if kind == "q8_0":
            return 0.5 * signed(block[2 + i])
        if kind == "q4_K":
            part, scales = i // 32, block[4:16]
            scale, least = scales[part % 4] & 63, scales[part % 4 + 4] & 63
            if part >= 4:
                scale = scales[part + 4] & 15 | scales[part - 4] >> 6 << 4
                least = scales[part + 4] >> 4 | scales[part] >> 6 << 4
            return 0.5 * scale * (block[16 + 32 * (part // 2) + i % 32] >> 4 * (part % 2) & 15) - 0.5 * least
        half, quarter, lane = i // 128, i % 128 // 32, i % 32
        low = block[64 * half + 32 * (quarter % 2) + lane] >> 4 * (quarter // 2) & 15
        high = block[128 + 32 * half + lane] >> 2 * quarter & 3
        return 0.5 * signed(block[192 + i // 16]) * ((low | high << 4) - 32)

    assert elements.tolist() == [[element(block, i) for i in range(per)] for block in byte]


def test_what_the_collections_needed_of_the_front_end():
    source = """
    #define BASE 1200
    constant short a [[function_constant(BASE + 1)]];
    template <short N> float sum() { float s[N] = { [ 0 ... N - 1 ] = 2.0f }; float r = 0; for (float v : s) r += v;
                                       return r; }
    kernel void f(device float *x) { x[0] = a + sum<3>(); }"""
    x = np.zeros(1, np.float32)
    anymetal.compile(source, constants={1201: 4})["f"](1, 1, x)
    assert x[0] == 10
    source = """
    #include <metal_stdlib>
    using namespace metal;
    struct One { array<int, 3> n; };
    struct Two { float factor; int n; };
    int last(constant int *n) { return n[2]; }
    template <class T> kernel void f(device T *x, constant One &one) { auto n = one.n.data(); x[0] = last(n) + n[0]; }
    template <class T> kernel void f(device T *x, constant Two &two, constant int &more) { x[0] = two.factor + more; }
    template [[host_name("one")]] kernel void f<float>(device float *x, constant One &one);
    template [[host_name("two")]] kernel void f<float>(device float *x, constant Two &two, constant int &more);"""
    library = anymetal.compile(source)
    library["one"](1, 1, x, np.array([1, 2, 3], np.int32))
    assert x[0] == 4
    library["two"](1, 1, x, np.array([(2.5, 1)], [("factor", "f4"), ("n", "i4")]), np.int32(4))
    assert x[0] == 6.5
    source = """
    #include <metal_stdlib>
    using namespace metal;
    namespace a { namespace b { template <class T> kernel void f(device T *x) { x[0] = 3; } } }
    template [[host_name("f")]] kernel void ::a::b::f<float>(device float *x);"""
    anymetal.compile(source)["f"](1, 1, x)
    assert x[0] == 3
    with pytest.raises(anymetal.CompileError, match="no lambda expressions before"):
        anymetal.compile("kernel void f(device int *x) { auto g = [](int i) { return i; }; x[0] = g(1); }")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("float4(x > 0)", [1, 0, 1, 0]), ("(float4)(x != float4(0))", [1, 1, 1, 0]), ("float4(b)", [1, 0, 1, 0]),
        ("T(x > 0) - T(x < 0)", [1, -1, 1, 0]), ("float4((x > 0) | (x < 0))", [1, 1, 1, 0]),
        ("float4(half4(x >= 1))", [1, 0, 1, 0]), ("float4(int4(x > 0))", [1, 0, 1, 0]), ("float4(isnan(x))", [0] * 4),
        ("vec<float, 4>(x > 0)", [1, 0, 1, 0]),
        ("float4(x.x > 0 ? x : -x)", [1, -1, 2, 0]), ("float4(i & 6)", [6, 4, 2, 0]),
        ("float4(i - (1 < 2))", [6, 4, 2, -1]),
        ("float4(i << 1)", [14, 10, 6, 0]), ("select(x, -x, b)", [-1, -1, -2, 0]),
        ("float4(x.x > 0)", [1] * 4), ("float4(bool4(x > 0))", [1, 0, 1, 0]),
    ],
)  # fmt: skip
def test_vectors_of_bool_are_zero_or_one(value, expected):
    """As numbers: llama.cpp's step, sign and leaky ReLU of vectors rely on it."""
    x, y = np.array([1, -1, 2, 0], np.float32), np.zeros(4, np.float32)
    source = f"""#include <metal_stdlib>
    using namespace metal;
    template <typename T> void f(device const T *p, device T *y) {{
        const T x = p[0]; const bool4 b = x > 0; const int4 i = int4(7, 5, 3, 0); y[0] = {value}; (void)b; (void)i; }}
    kernel void k(device const float4 *x, device float4 *y) {{ f(x, y); }}"""
    anymetal.compile(source)["k"](1, 1, x, y)
    assert y.tolist() == expected
