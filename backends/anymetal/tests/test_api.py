"""``anymetal.compile``: kernels called with NumPy arrays, by themselves, in a process of their own, and in pytest."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest

import anymetal
from anymetal import CompileError, LaunchError, clang, isolation
from anymetal.api import differing
from anymetal.arguments import as_number
from anymetal.frontend import cache
from shared import environment

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
AXPY = """
kernel void axpy(device const float *x, device float *y, constant float &a, uint i [[thread_position_in_grid]]) {
    y[i] += a * x[i];
}
kernel void gap(device int *y [[buffer(3)]], constant N_TYPE &n [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    y[i] = n + N;
}
kernel void both(device int *a, device int *b, uint i [[thread_position_in_grid]]) { a[i] = 1; b[i + 4] = 2; }"""
STRUCT = """
struct Row { float3 a; uint n; };
struct Small { half a; };
kernel void f(device Row *rows, device void *any, device Small *small, uint i [[thread_position_in_grid]]) {
    rows[i].n += 1;
}"""
ROW = np.dtype({"names": ["a", "n"], "formats": [(np.float32, 3), np.uint32], "offsets": [0, 16], "itemsize": 32})


@pytest.fixture(scope="module")
def library():
    return anymetal.compile(AXPY, define={"N": 4, "N_TYPE": "uint", "FLAG": True, "EMPTY": None})


def arrays():
    return np.arange(4, dtype=np.float32), np.ones(4, np.float32)


def test_arrays_are_changed_in_place(library):
    x, y = arrays()
    assert library["axpy"](4, 4, x, y, 10).changed == {1: 3}
    np.testing.assert_array_equal(y, [1, 11, 21, 31])
    library["axpy"].threadgroups((2,), 2, x, y, np.float32(-10))
    np.testing.assert_array_equal(y, 1)
    np.testing.assert_array_equal(x, np.arange(4))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 8, 12, 16])
def test_elements_that_differ_are_counted_by_their_bytes(size):
    before = np.random.default_rng(size).integers(0, 256, 60 * size, np.uint8)
    after = before.copy()
    after[[0, size - 1, 7 * size, 40 * size + size // 2]] ^= 1 << 7
    assert differing(before, after, size) == 3
    assert differing(before, before, size) == 0


def test_a_library_compiles_a_kernel_once(library, monkeypatch):
    first = library["axpy"]
    monkeypatch.setattr(cache, "key", None)
    monkeypatch.setattr(isolation.Request, "function", None)
    assert library["axpy"] is first


POINTERS = """
struct Inner { device const float *b; int k; };
struct Args {
    device const float *a [[id(0)]];
    device float *out, *none [[id(7)]];
    float scale = 1, weights[2];
    array<device const float *, 2> more;
    Inner inner;
};
kernel void f(constant Args &args, uint i [[thread_position_in_grid]]) {
    args.out[i] = args.a[i] * args.scale + args.more[0][i] + args.more[1][i] + args.inner.b[i] * args.inner.k;
    args.out[i] += args.none ? 0 : args.weights[1];
}
kernel void rows(device Args *args, uint i [[thread_position_in_grid]]) { args[1].out[i] += args[0].a[i]; }
template <class T> struct Of { device T *x; T n; };
template <class T> [[kernel]] void of(constant Of<T> &in, uint i [[thread_position_in_grid]]) { in.x[i] = in.n; }
template [[host_name("of_int")]] [[kernel]] decltype(of<int>) of<int>;
kernel void list(device float *y [[buffer(0)]], array<device const float *, 3> x [[buffer(2)]],
                 uint i [[thread_position_in_grid]]) { y[i] = x[0][i] + 10 * x[1][i] + 100 * x[2][i]; }
kernel void deep(device float *device *x [[buffer(0)]]) { x[0][0] = 1; }"""


@pytest.mark.parametrize("isolate", [False, True])
def test_structs_with_pointers(isolate):
    library = anymetal.compile(HEADER + POINTERS, isolate=isolate)
    x, out = arrays()
    args = {"a": x, "out": out, "none": None, "scale": 2, "weights": np.float32([0, 0.5])}
    args |= {"more": [x, anymetal.at(np.full(8, 3, np.float32), 16)], "inner": {"b": x, "k": 1000}}
    assert library["f"](4, 4, args).changed == {"0.out": 4}
    np.testing.assert_array_equal(out, 1003 * x + 3.5)
    library["rows"](4, 2, [args | {"out": None}, args])
    np.testing.assert_array_equal(out, 1004 * x + 3.5)
    numbers = np.zeros(4, np.int32)
    library["of_int"](4, 4, {"x": numbers, "n": 7})
    np.testing.assert_array_equal(numbers, 7)
    assert library["list"](4, 4, out, x, x, 2 * x).changed == {0: 4}
    np.testing.assert_array_equal(out, 211 * x)
    assert library.kernels["of_int"]["arguments"][0]["members"] == ["x", "n"]


MISUSED = {
    "bytes": (b"12345678", TypeError, "it holds pointers: pass a mapping from the names of its members, a, out, none"),
    "lacking": ({"a": 1}, LaunchError, "the member '.*' is missing; it has a, out, none"),
    "unknown": ({"nine": 1}, LaunchError, "the member 'nine' is unknown"),
    "number": ({"a": 5}, TypeError, r"the member `a` of buffer\(0\).*: it is a pointer, pass an array of NumPy, not 5"),
    "dtype": (
        {"a": np.zeros(4)},
        LaunchError,
        "the member `a` of .*: its elements have the dtype float32, not float64",
    ),
    "one of two": ({"more": [None]}, TypeError, "the member `more` of .*: it is a sequence of 2 arrays"),
    "size": ({"weights": np.float32([1])}, LaunchError, "the member `weights` of .*: it has 8 bytes, not 4"),
    "alignment": (
        {"a": anymetal.at(np.zeros(4, np.float32), 2)},
        LaunchError,
        r"buffer.0..a of kernel `f`: the offset 2 is not",
    ),
    "too short": (
        {"a": anymetal.at(np.zeros(4, np.float32), 4)},
        LaunchError,
        r"out of bounds: a\[3\], byte offset 12 of buffer.0..a of",
    ),
}


def test_several_structs_with_pointers_to_several_arrays():
    source = """
#include <metal_stdlib>
using namespace metal;
struct Row { device float *x; float k; texture2d<float> t; };
kernel void f(device Row *rows [[buffer(0)]], device float *out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    out[i] = rows[i].x[0] * rows[i].k + rows[i].t.read(uint2(0)).x;
    rows[i].x[0] = i;
}"""
    x = [np.float32([2]), np.float32([3])]
    images, out = [np.full((1, 1), v, np.float32) for v in (10, 20)], np.zeros(2, np.float32)
    rows = [{"x": one, "k": k, "t": image} for one, k, image in zip(x, (4, 5), images, strict=True)]
    done = anymetal.compile(source)["f"](2, 2, rows, out)
    assert out.tolist() == [18, 35]
    assert [one.tolist() for one in x] == [[0], [1]]
    assert done.changed == {1: 2, "0.0.x": 1, "0.1.x": 1}


def test_a_struct_in_a_struct_with_pointers():
    """It is not the one that it is declared in."""
    source = """
#include <metal_stdlib>
using namespace metal;
class Baker {
public:
    constant static constexpr int K = 3;
    struct Node { float a; uint b; };
    constant Node *nodes;
    float at(uint i) { return nodes[i].a * K; }
};
struct Holder { Baker::Node n; device float *q; };
kernel void k(constant Baker::Node *nodes [[buffer(0)]], constant Holder &h [[buffer(1)]],
              uint i [[thread_position_in_grid]]) {
    Baker baker;
    baker.nodes = nodes;
    h.q[i] = baker.at(i) + h.n.a;
}"""
    node = np.dtype([("a", "f4"), ("b", "u4")])
    q = np.zeros(2, np.float32)
    kernel = anymetal.compile(source)["k"]
    kernel(2, 2, np.array([(1.5, 2), (2.5, 3)], node), {"n": np.array((0.5, 1), node), "q": q})
    assert q.tolist() == [5, 8]


@pytest.mark.parametrize("name", MISUSED)
def test_misuse_of_structs_with_pointers(name):
    given, kind, message = MISUSED[name]
    x, out = arrays()
    args = dict.fromkeys(("a", "none", "inner.b"), x) | {"out": out, "scale": 1, "weights": np.zeros(2, np.float32)}
    args |= {"more": [x, x], "inner.k": 1}
    kernel = anymetal.compile(HEADER + POINTERS)["f"]
    changed = args | given if isinstance(given, dict) else given
    with pytest.raises(kind, match=message):
        kernel(4, 4, {"a": x} if name == "lacking" else changed)
    np.testing.assert_array_equal(out, 1)


def test_pointers_to_pointers_are_refused():
    with pytest.raises(
        CompileError, match=r"`device float \*device \*x`.*: a pointer to pointers; an array of buffers is"
    ):
        anymetal.compile(HEADER + POINTERS)["deep"]
    with pytest.raises(CompileError, match="needs the index of the first"):
        anymetal.compile(f"{HEADER}kernel void f(array<device int *, 2> x) {{ x[0][0] = 1; }}")
    device, source = clang.Device(), "struct A { device int *x; }; kernel void f(device A *a) { a->x[0] = 1; }"
    with pytest.raises(LaunchError, match=r"holds pointers: call a kernel of anymetal\.compile"):
        device.kernel(source).function("f")(1, device.buffer(8))


def test_shapes_offsets_and_one_array_twice(library):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    library["axpy"](4, 4, anymetal.at(x, 32), anymetal.at(x, 16), 1)
    np.testing.assert_array_equal(x, [[0, 1, 2, 3], [12, 14, 16, 18], [8, 9, 10, 11]])
    library["axpy"](12, 4, x, x, 1.0)
    np.testing.assert_array_equal(x[0], [0, 2, 4, 6])
    both = np.zeros(8, np.int32)
    assert library["both"](4, 4, both, both).changed == {0: 8, 1: 8}
    np.testing.assert_array_equal(both, [1] * 4 + [2] * 4)


def test_memory_that_is_also_read_by_a_read_only_array():
    source = (
        "kernel void f(device int *y, device const int *x, uint i [[thread_position_in_grid]]) { y[i] = x[i] + 1; }"
    )
    y = np.zeros(4, np.int32)
    anymetal.compile(source)["f"](4, 4, y, read_only(y[:]))
    np.testing.assert_array_equal(y, 1)


def test_indices_with_gaps(library):
    y = np.zeros(5, np.int32)
    library["gap"](5, 5, 3, y)
    np.testing.assert_array_equal(y, 7)
    with pytest.raises(LaunchError, match=r"takes 2 buffers, not 4: buffer\(1\) is `constant uint &n`"):
        library["gap"](5, 5, y, 3, y, y)


NAMED = """#include <metal_stdlib>
using namespace metal;
kernel void f(device const int *in_ [[buffer(3)]], device int *out [[buffer(0)]], constant int2 &by [[buffer(1)]],
              array<device const int *, 2> more [[buffer(4)]], device const int (*rows)[2] [[buffer(7)]],
              uint i [[thread_position_in_grid]]) {
    out[i] = in_[i] * by.y + more[1][i] + rows[i][1];
}"""


def test_buffers_are_bound_by_name():
    kernel = anymetal.compile(NAMED)["f"]
    assert [known.name for known in kernel.parameters.values()] == ["out", "by", "in_", "more", "more", "rows"]
    assert list(kernel.parameters) == [row["index"] for row in kernel.describe()["arguments"]] == [0, 1, 3, 4, 5, 7]
    declared = anymetal.compile(NAMED).declared["f"]
    assert [row["index"] for row in declared] == [0, 1, 3, 4, 7]
    x, by = np.arange(4, dtype=np.int32), np.int32([0, 10])
    named = {"by": by, "rows": np.int32([[0, 100], [0, 200], [0, 300], [0, 400]]), "in_": x, "more": [-x, x]}
    for positional in (0, 1, 2, 5):
        out = np.zeros(4, np.int32)
        every = (out, by, x, -x, x)
        left = {key: value for key, value in named.items() if positional < 5 or key == "rows"}
        left = {key: value for key, value in left.items() if key != "by" or positional < 2}
        kernel(4, 4, *every[:positional], **left, **({} if positional else {"out": out}))
        np.testing.assert_array_equal(out, 11 * x + [100, 200, 300, 400])
    out = np.zeros(4, np.int32)
    kernel.threadgroups(1, 4, out=out, **named)
    np.testing.assert_array_equal(out, 11 * x + [100, 200, 300, 400])


WRONG_NAMES = {
    "missing": ((), {"out": 0, "by": 0}, "no argument for `in_`, `more`, `rows`"),
    "twice": ((0,), {"out": 0}, "`out` is bound by its position, too"),
    "unknown": ((), {"y": 0}, "`y` is no buffer of it; the buffers are out, by, in_, more, rows"),
    "no list": ((0, 0, 0), {"more": np.zeros(2), "rows": 0}, "`more` is an array of 2 buffers: pass a list of 2"),
    "a short list": ((0, 0, 0), {"more": [0], "rows": 0}, "`more` is an array of 2 buffers: pass a list of 2"),
}


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_wrong_names(name):
    positional, named, message = WRONG_NAMES[name]
    with pytest.raises(LaunchError, match=message):
        anymetal.compile(NAMED)["f"](4, 4, *positional, **named)


def test_kernels_are_described(library):
    assert list(library.kernels) == list(library) == ["axpy", "gap", "both"]
    assert len(library.kernels) == 3
    described = json.loads(json.dumps(library.kernels["gap"]))
    number = {"kind": "buffer", "bytes": 4, "alignment": 4}
    assert described == {
        "name": "gap",
        "threads": 1024,
        "threadgroup_bytes": 0,
        "arguments": [
            number | {"index": 1, "type": "constant uint &n", "dtype": "uint32", "written": False},
            number | {"index": 3, "type": "device int *y", "dtype": "int32", "written": True},
        ],
    }
    assert str(library) == "anymetal.Library(axpy, gap, both)"
    assert str(library["gap"]) == "anymetal.Kernel(gap)"
    with pytest.raises(LaunchError, match="no kernel 'nothing' in this source; it has axpy, gap, both"):
        library["nothing"]


def test_an_error_changes_no_array(library):
    x, y = arrays()
    with pytest.raises(LaunchError, match=r"out of bounds"):
        library["axpy"](5, 4, x, y, 10)
    np.testing.assert_array_equal(y, 1)


def read_only(y):
    y.flags.writeable = False
    return y


WRONG = {
    "too few": (lambda x, y: (x, y), LaunchError, "takes 3 buffers, not 2"),
    "too many": (lambda x, y: (x, y, 1, y), LaunchError, "takes 3 buffers, not 4"),
    "unbound": (lambda x, y: (None, y, 1), LaunchError, r"reads 4 bytes through a null pointer"),
    "unbound number": (lambda x, y: (x, y, None), LaunchError, r"`constant float &a`: it is not bound"),
    "float64": (
        lambda x, y: (x.astype(float), y, 1),
        LaunchError,
        r"buffer\(0\) .* have the dtype float32, not float64",
    ),
    "another byte order": (lambda x, y: (x.astype(">f4"), y, 1), LaunchError, "have the dtype float32, not >f4"),
    "a scalar of float64": (lambda x, y: (x, y, np.float64(1)), LaunchError, r"buffer\(2\) .* float32, not float64"),
    "a struct": (lambda x, y: (np.zeros(4, ROW), y, 1), LaunchError, r"buffer\(0\) .* have the dtype float32"),
    "a mask": (lambda x, y: (np.ma.array(x), y, 1), TypeError, "the mask of a masked array would be lost"),
    "objects": (lambda x, y: (x.astype(object), y, 1), TypeError, "the array holds Python objects"),
    "columns": (lambda x, y: (np.ones((4, 2), "f")[:, 0], y, 1), LaunchError, "not C-contiguous"),
    "no elements": (lambda x, y: (x[:0], y, 1), LaunchError, r"has no elements, of shape \(0,\)"),
    "a read-only array": (lambda x, y: (x, read_only(y), 1), LaunchError, "may write it, and the array is read-only"),
    "a number as memory": (
        lambda x, y: (x, 1.0, 1),
        LaunchError,
        r"buffer\(1\) .* it is memory, pass an array of NumPy",
    ),
    "bytes as memory": (lambda x, y: (x, bytes(16), 1), LaunchError, "it is memory"),
    "a number as a pointer": (lambda x, y: (3, y, 1), LaunchError, r"buffer\(0\) .* it is a pointer, pass an array"),
    "a list": (
        lambda x, y: ([1.0], y, 1),
        TypeError,
        "an argument is an array of NumPy, a number or bytes, not a list",
    ),
    "too long a value": (lambda x, y: (x, y, bytes(8)), LaunchError, "needs 4 bytes and has 8"),
    "too large a float": (lambda x, y: (x, y, 1e39), LaunchError, "its type is float32, and 1e[+]39 is too large"),
    "a bool": (lambda x, y: (x, y, True), TypeError, "its type is float32, not True of type bool"),
    "an overlap": (lambda x, y: (y[1:], y[:-1], 1), LaunchError, r"buffer\(0\) and buffer\(1\) .* overlap"),
    "an offset": (lambda x, y: (anymetal.at(x, 3), y, 1), LaunchError, "the offset 3 is not a multiple of 4 below 16"),
    "an offset in a value": (lambda x, y: (x, y, anymetal.at(1.0, 4)), LaunchError, "it is memory"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(library, name):
    make, error, message = WRONG[name]
    x, y = arrays()
    with pytest.raises(error, match=message):
        library["axpy"](4, 4, *make(x, y))
    np.testing.assert_array_equal(y, 1)


def test_structs():
    f = anymetal.compile(STRUCT)["f"]
    rows = np.zeros(3, ROW)
    any_, small = np.zeros(1, np.float64), np.zeros(2, np.float16)
    assert f(3, 3, rows, any_, small).changed == {0: 3, 1: 0, 2: 0}
    np.testing.assert_array_equal(rows["n"], 1)
    packed = np.zeros(3, [("a", np.float32, 3), ("n", np.uint32)])
    with pytest.raises(LaunchError, match=r"buffer\(0\) .* have 32 bytes, and the dtype 16\. .* of one of 4, unless"):
        f(3, 3, packed, any_, small)
    with pytest.raises(LaunchError, match=r"buffer\(2\) .*: its elements have 2 bytes, and those of float32 4"):
        f(3, 3, rows, any_, small.astype(np.float32))


DECLARED = {
    "device const float *": "float32",
    "device volatile uint4 *": "uint32",
    "const device metal::packed_float3 *": "float32",
    "device packed_half2 *": "float16",
    "constant unsigned int &": "uint32",
    "constant int64_t &": "int64",
    "device atomic<int> *": "int32",
    "device atomic_uint *": "uint32",
    "constant bfloat2 &": "bfloat16",
    "device bool *": "bool",
    "device char *": "int8",
    "device void *": None,
    "constant Row &": None,
    "device Number<ushort> ::type *": "uint16",
    "threadgroup half *": "float16",
}


def test_dtypes_of_declarations():
    parameters = ", ".join(f"{text} p{i}" for i, text in enumerate(DECLARED))
    source = f"""#include <metal_stdlib>
    using namespace metal; struct Row {{ float a; }}; template <class T> struct Number {{ typedef T type; }};
    kernel void f({parameters}) {{}}"""
    arguments = anymetal.compile(source).kernels["f"]["arguments"]
    assert {re.sub(r"p\d+$", "", one["type"]).strip(): one["dtype"] for one in arguments} == DECLARED


def test_dtypes_of_templates():
    library = anymetal.compile("""
    template <class T> kernel void twice(device T *x, constant T &a, uint i [[thread_position_in_grid]]) { x[i] *= a; }
    template [[host_name("halves")]] kernel void twice(device half *, constant half &, uint);
    template [[host_name("longs")]] kernel void twice(device long *, constant long &, uint);""")
    x = np.arange(4)
    library["longs"](4, 4, x, 2**40)
    np.testing.assert_array_equal(x, np.arange(4) * 2**40)
    with pytest.raises(LaunchError, match=r"buffer\(0\) of kernel `halves`, .* have the dtype float16, not int64"):
        library["halves"](4, 4, x, 2.0)
    with pytest.raises(TypeError, match=r"buffer\(1\) of kernel `longs`, .*: its type is int64, not 2\.0"):
        library["longs"](4, 4, x, 2.0)


@pytest.mark.parametrize(
    ("value", "dtype", "bits"),
    [
        (True, "bool", b"\1"),
        (-128, "int8", b"\x80"),
        (2**64 - 1, "uint64", b"\xff" * 8),
        (0.1, "float32", np.float32(0.1).tobytes()),
        (3, "float16", np.float16(3).tobytes()),
        (-math.inf, "float16", np.float16(-math.inf).tobytes()),
        (1.00390625, "bfloat16", b"\x80\x3f"),
        (1.01171875, "bfloat16", b"\x82\x3f"),
        (-math.inf, "bfloat16", b"\x80\xff"),
        (math.nan, "bfloat16", b"\xc0\x7f"),
    ],
)
def test_numbers(value, dtype, bits):
    assert as_number(value, dtype, "it") == bits


@pytest.mark.parametrize(
    ("value", "dtype", "error"),
    [
        *[(128, "int8", LaunchError), (-1, "uint32", LaunchError), (2**64, "uint64", LaunchError)],
        *[(1.0, "int32", TypeError), (1, "bool", TypeError), (True, "int32", TypeError), (1, None, LaunchError)],
        *[(65520.0, "float16", LaunchError), (3.4e38, "bfloat16", LaunchError), (10**400, "float32", LaunchError)],
    ],
)
def test_numbers_out_of_range(value, dtype, error):
    with pytest.raises(error, match=r"^it: its type is"):
        as_number(value, dtype, "it")


def test_bfloat_arrays():
    source = "kernel void f(device bfloat *x, uint i [[thread_position_in_grid]]) { x[i] = bfloat(float(x[i]) * 2); }"
    f, bits = anymetal.compile(source)["f"], np.array([0x3F80, 0x4000], np.uint16)
    f(2, 2, bits)
    np.testing.assert_array_equal(bits, [0x4000, 0x4080])
    kinds = pytest.importorskip("ml_dtypes")
    x = np.array([1, -3], kinds.bfloat16)
    f(2, 2, x)
    np.testing.assert_array_equal(x.astype(np.float32), [2, -6])
    device = clang.Device()
    np.testing.assert_array_equal(device.buffer(x).view(np.ndarray), x.view(np.uint8))
    with pytest.raises(LaunchError, match="have the dtype bfloat16, not float16"):
        f(2, 2, x.astype(np.float16))


# ------------------------------------------------------------------------------------------------ sources


def test_files(tmp_path):
    (tmp_path / "twice.h").write_text("inline float twice(float x) { return 2 * x; }\n")
    path = tmp_path / "f.metal"
    path.write_text('#include "twice.h"\nkernel void f(device float *x) { x[0] = twice(x[0]); }\n')
    x = np.ones(1, np.float32)
    for source in (path, str(path)):
        anymetal.compile(source)["f"](1, 1, x)
    assert x[0] == 4


def test_files_beside_a_file(tmp_path):
    for name, value in {"own/c.h": 3, "common/c.h": 5, "common/d.h": 7}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"#define {'C' if name.endswith('c.h') else 'D'} {value}\n")
    path, x = tmp_path / "own" / "k.metal", np.zeros(1, np.float32)
    path.write_text('#include "c.h"\n#include "../common/d.h"\nkernel void f(device float *x) { x[0] = C * D; }\n')
    hint = f"'../common/d.h' file not found: .* It is in {tmp_path / 'common'}: add '{tmp_path}' to `include`"
    for include in ([], [tmp_path / "own"]):  # the name leads out of the folders
        with pytest.raises(CompileError, match=hint):
            anymetal.compile(path, include=include)
    anymetal.compile(path, include=[tmp_path])["f"](1, 1, x)
    assert x[0] == 21
    path.write_text('#include "c.h"\n#include <d.h>\nkernel void f(device float *x) { x[0] = C * D; }\n')
    anymetal.compile(path, include=[tmp_path / "common"])["f"](1, 1, x)
    assert x[0] == 21
    with pytest.raises(CompileError, match="file not found") as caught:
        anymetal.compile('#include "/etc/passwd"\nkernel void f() {}', include=[tmp_path])
    assert "It is in" not in str(caught.value)


SOURCES = {
    "bytes": (AXPY.encode(), {}, TypeError, "the source is a string or a path, not bytes"),
    "no file": ("nowhere.metal", {}, CompileError, "'nowhere.metal' cannot be read: No such file"),
    "no kernel": ("int f();", {}, CompileError, "no kernel function"),
    "10 MB": ("// " + "x" * 10**7, {}, CompileError, "has 10000003 characters; the maximum is 4194304"),
    "an error": (
        "\nkernel void f(device float *x) { x[0] = y; }",
        {"define": {"A": 1}},
        CompileError,
        "<msl>:2:41: error",
    ),
    "a runtime": ("", {"runtime": "vulkan"}, LaunchError, "runtime='vulkan': the runtimes of compile"),
    "a macro": ("", {"define": {"a b": 1}}, CompileError, "the name of a macro is an identifier"),
    "lines": ("", {"define": {"a": "1\n#include <x>"}}, CompileError, "a value is ASCII text in one line"),
    "macros": ("", {"define": ["a"]}, TypeError, "define is of type list"),
    "a folder": ("", {"include": "folder"}, TypeError, "include='folder' is a sequence of folders"),
    "isolate": ("", {"isolate": 1}, TypeError, "isolate is of type int"),
    "denormals": ("", {"denormals": "none"}, LaunchError, "legal values are 'keep' and 'flush'"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_illegal_sources(name):
    source, options, error, message = SOURCES[name]
    with pytest.raises(error, match=message):
        anymetal.compile(source, **options)


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "f.metal").write_bytes(b"MTLB\xff\xfe")
    with pytest.raises(CompileError, match="the source is no text: character 15 is NUL"):
        anymetal.compile("kernel void f()\0{}")
    with pytest.raises(CompileError, match=r"f\.metal' is no text: byte 4 is not UTF-8"):
        anymetal.compile(tmp_path / "f.metal")


# ------------------------------------------------------------------------------------------------ isolation


def test_a_launch_in_its_own_process():
    library = anymetal.compile(AXPY, define={"N": 4, "N_TYPE": "uint"}, isolate=True)
    x, y = arrays()
    assert library["axpy"](4, 4, x, y, 10).changed == {1: 3}
    np.testing.assert_array_equal(y, [1, 11, 21, 31])
    library["axpy"](2, 2, y, anymetal.at(y, 8), 1)
    np.testing.assert_array_equal(y, [1, 11, 22, 42])
    with pytest.raises(LaunchError, match=r"reads 4 bytes out of bounds: x\[4\], byte offset 16 of buffer\(0\)"):
        library["axpy"](5, 5, x, y, 10)
    np.testing.assert_array_equal(y, [1, 11, 22, 42])


@pytest.mark.parametrize(
    ("child", "message"),
    [
        ("import os; os.kill(os.getpid(), 11)", "kernel `axpy` ended its process with SIGSEGV"),
        ("import sys; sys.exit('so long')", "kernel `axpy` ended its process with exit status 1: so long"),
        ("import time; time.sleep(60)", "in a process of its own, did not end; the process was killed"),
    ],
)
def test_a_crash_of_the_process(monkeypatch, child, message):
    monkeypatch.setattr(isolation, "START", child)
    monkeypatch.setattr(isolation, "GRACE", 0.5)
    x, y = arrays()
    with pytest.raises(LaunchError, match=message):
        anymetal.compile(AXPY, define={"N": 4, "N_TYPE": "uint"}, isolate=True)["axpy"](4, 4, x, y, 10, seconds=0.01)
    np.testing.assert_array_equal(y, 1)


def test_what_the_process_prints_is_no_result(monkeypatch):
    forged = json.dumps({"error": None, "message": "", "findings": [], "written": [0, 0, 0], "unreached": []})
    printed = f"print({forged!r}); print('line' * 3000, flush=True)"
    monkeypatch.setattr(isolation, "START", f"{printed.replace('{', '{{').replace('}', '}}')}; {isolation.START}")
    x, y = arrays()
    done = anymetal.compile(AXPY, define={"N": 4, "N_TYPE": "uint"}, isolate=True)["axpy"](4, 4, x, y, 10)
    assert done.written == {1: 4}
    np.testing.assert_array_equal(y, [1, 11, 21, 31])


ANSWER = '{{"error": null, "message": "", "findings": [], "written": [0], "unreached": []}}'


@pytest.mark.parametrize("answer", ["", "no JSON", "[]", '{{"error": "Other"}}', f"{ANSWER}\n1234"])
def test_results_that_cannot_be_read(monkeypatch, answer):
    monkeypatch.setattr(isolation, "START", f"{{0!r}}; import os; os.write({{1}}, {answer.encode()!r})")
    x, y = arrays()
    with pytest.raises(LaunchError, match="kernel `axpy`, in a process of its own, left no results that can be read"):
        anymetal.compile(AXPY, define={"N": 4, "N_TYPE": "uint"}, isolate=True)["axpy"](4, 4, x, y, 10)
    np.testing.assert_array_equal(y, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not limit memory")
def test_the_memory_of_the_process(monkeypatch):
    monkeypatch.setenv("ANYMETAL_LAUNCH_MEMORY", "200")
    x, y = arrays()
    with pytest.raises(LaunchError, match="kernel `axpy` could not run: no memory"):
        anymetal.compile(AXPY, define={"N": 4, "N_TYPE": "uint"}, isolate=True)["axpy"](4, 4, x, y, 10)


# ------------------------------------------------------------------------------------------------ pytest

TEST = """
import numpy as np
import pytest

@pytest.mark.parametrize("body", ["x[i] > 0 ? x[i] : 0", "x[i]"])
def test_relu(msl, body):
    x = np.linspace(-1, 1, 1000, dtype=np.float32)
    y = np.full_like(x, np.nan)
    msl("relu.metal", define={"BODY": body})["relu"](1000, 256, x, y)
    np.testing.assert_array_equal(y, np.maximum(x, 0))
"""
RELU = "kernel void relu(device const float *x, device float *y, uint i [[thread_position_in_grid]]) { y[i] = BODY; }"


def test_the_fixture(tmp_path):
    (tmp_path / "test_relu.py").write_text(TEST)
    (tmp_path / "relu.metal").write_text(RELU)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env=environment(),
    )  # fmt: skip
    assert "Mismatched elements: 500 /" in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_a_parameter_that_depends_on_a_function_constant():
    source = """
    constant bool has [[function_constant(0)]];
    kernel void f(device float* x [[buffer(0)]], device const float* y [[buffer(1), function_constant(has)]],
                  uint i [[thread_position_in_grid]]) { x[i] += has ? y[i] : 1; }"""
    x, y = np.zeros(4, np.float32), np.full(4, 5, np.float32)
    anymetal.compile(source, constants={"has": False})["f"](4, 4, x)
    np.testing.assert_array_equal(x, 1)
    anymetal.compile(source, constants={0: True})["f"](4, 4, x, y)
    np.testing.assert_array_equal(x, 6)
    with pytest.raises(CompileError, match="no value for the function constant `has`"):
        anymetal.compile(source)["f"]


def test_parameters_of_one_index_that_function_constants_exclude():
    """Only one of them exists; with one that always exists, or if both do, the index is used twice."""
    source = """#include <metal_stdlib>
    using namespace metal;
    constant ushort slices [[function_constant(0)]];
    constant bool several = slices > 1, single = !several;
    constant bool both [[function_constant(1)]];
    kernel void f(texture2d<float> x [[texture(0), function_constant(single)]],
                  texture2d_array<float> y [[texture(0), function_constant(several)]],
                  device float4 *a [[buffer(0), function_constant(single)]],
                  device float4 *b [[buffer(0), function_constant(OTHER)]]) {
        if (single) a[0] = x.read(ushort2(0)); else b[0] = 2 * y.read(ushort2(0), slices - 1);
    }"""
    for slices, expected in (1, 1), (3, 6):
        out, image = np.zeros(4, np.float32), np.ones((1, 1, 4), np.float32)
        texture = image if slices == 1 else np.stack([image * k for k in (1, 2, 3)])
        made = anymetal.compile(source.replace("OTHER", "several"), constants={"slices": slices, "both": False})
        made["f"](1, 1, out, textures=[texture])
        np.testing.assert_array_equal(out, expected)
    with pytest.raises(anymetal.LaunchError, match="uses a buffer index twice: 0"):
        anymetal.compile(source.replace("OTHER", "both"), constants={"slices": 1, "both": True})["f"](1, 1, out)
