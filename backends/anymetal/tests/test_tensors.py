"""Tensors of MSL 4.0 and ``mpp::tensor_ops::matmul2d``, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import anymetal
from anymetal import CompileError, LaunchError, clang
from shared import few

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

HEADER = """
#include <metal_stdlib>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;
"""
PRODUCT = """
kernel void f(device T *x, device T *y, device D *z, constant int *n, uint2 g [[threadgroup_position_in_grid]]) {
    const int M = n[0], N = n[1], K = n[2];
    using mode = matmul2d_descriptor::mode;
    constexpr auto desc = matmul2d_descriptor(ROWS, COLUMNS, static_cast<int>(dynamic_extent), LEFT, RIGHT, false,
                                              ACCUMULATE ? mode::multiply_accumulate : mode::multiply);
    matmul2d<desc, execution_simdgroups<SIMDGROUPS>> op;
    auto a = tensor<device T, dextents<int32_t, 2>, tensor_inline>(x, dextents<int32_t, 2>(LEFT ? M : K, LEFT ? K : M));
    auto b = tensor(y, dextents<int, 2>{RIGHT ? K : N, RIGHT ? N : K}, array<int, 2>({1, RIGHT ? K : N}));
    auto c = tensor(z, dextents<int, 2>(N, M)).slice(g.x * COLUMNS, g.y * ROWS);
    auto left = a.slice(LEFT ? g.y * ROWS : 0, LEFT ? 0 : g.y * ROWS);
    auto right = b.slice(RIGHT ? 0 : g.x * COLUMNS, RIGHT ? g.x * COLUMNS : 0);
    if (IN_MEMORY) {
        op.run(left, right, c);
        return;
    }
    auto sums = op.template get_destination_cooperative_tensor<decltype(left), decltype(right), D>();
    if (ACCUMULATE) sums.load(c);
    op.run(left, right, sums);
    sums.store(c);
}"""
DEFAULTS = {"T": "float", "D": "float", "ROWS": 64, "COLUMNS": 32, "SIMDGROUPS": 4}
FLAGS = ("ACCUMULATE", "LEFT", "RIGHT", "IN_MEMORY")
# With an even number of flags that are set: each three of the four have all eight values.
FORMS = [
    dict(zip(FLAGS, (bool(i >> k & 1) for k in range(4)), strict=True)) for i in range(16) if i.bit_count() % 2 == 0
]
FORMS += [{"T": "half"}, {"T": "half", "D": "half"}, {"T": "bfloat", "D": "bfloat"}, {"T": "char", "D": "int"}]
FORMS += [{"ROWS": 8, "COLUMNS": 24, "SIMDGROUPS": 1}, {"ROWS": 48, "COLUMNS": 16, "SIMDGROUPS": 2}]
DTYPES = {"float": np.float32, "half": np.float16, "char": np.int8, "int": np.int32}


def bits(values):
    """Return floats as bfloat with the same bits as uint16; they are small integers, which bfloat has exactly."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("form", few(FORMS, 4), ids=str)
def test_products(form):
    form = DEFAULTS | dict.fromkeys(FLAGS, False) | form
    m, n, k = 70, 50, 19
    random = np.random.default_rng(1)
    x, y, z = (random.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n)))
    expected = x @ y + (z if form["ACCUMULATE"] else 0)
    arrays = [x.T if form["LEFT"] else x, y.T if form["RIGHT"] else y, z]
    for i, name in enumerate((form["T"], form["T"], form["D"])):
        arrays[i] = np.ascontiguousarray(bits(arrays[i]) if name == "bfloat" else arrays[i].astype(DTYPES[name]))
    kernel = anymetal.compile(HEADER + PRODUCT, version="4.0", define=form)["f"]
    groups = -(-n // form["COLUMNS"]), -(-m // form["ROWS"])
    kernel.threadgroups(groups, 32 * form["SIMDGROUPS"], *arrays, np.array([m, n, k], np.int32))
    np.testing.assert_array_equal(arrays[2], bits(expected) if form["D"] == "bfloat" else expected)


REGISTERS = """
kernel void f(device const half *a, device const half *b, device float *c) {
    using mode = matmul2d_descriptor::mode;
    constexpr auto desc = matmul2d_descriptor(M, N, K, LEFT, RIGHT, true, mode::multiply_accumulate);
    matmul2d<desc, execution_SCOPE> op;
    auto x = op.get_left_input_cooperative_tensor<half, half, float>();
    auto y = op.get_right_input_cooperative_tensor<half, half, float>();
    auto z = op.get_destination_cooperative_tensor<decltype(x), decltype(y), float>();
    x.load(tensor((device half *)a, dextents<int, 2>(LEFT ? M : K, LEFT ? K : M)));
    y.load(tensor((device half *)b, dextents<int, 2>(RIGHT ? K : N, RIGHT ? N : K)));
    for (ushort i = 0; i < z.get_capacity(); i++) {
        auto place = z.get_multidimensional_index(i);
        if (z.is_valid_element(i)) z[i] = place[0] + 100 * place[1];
    }
    op.run(x, y, z);
    for (auto at = z.begin(); at != z.end(); ++at) {
        auto place = at.get_multidimensional_index();
        if (at.is_valid_element()) c[place[1] * N + place[0]] = *at;
    }
}"""


@pytest.mark.parametrize("scope", ["simdgroup", "thread"])
@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", few([((8, 40, 24),), ((16, 32, 16),)], 1))
def test_factors_in_registers(shape, flags, scope):
    m, n, k = shape
    random = np.random.default_rng(2)
    a, b = (random.integers(-4, 5, size).astype(np.float16) for size in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float32)
    define = dict(zip(("M", "N", "K", "LEFT", "RIGHT"), (*shape, *flags), strict=True))
    kernel = anymetal.compile(HEADER + REGISTERS.replace("SCOPE", scope), version="4.0", define=define)
    left, right = np.ascontiguousarray(a.T if flags[0] else a), np.ascontiguousarray(b.T if flags[1] else b)
    kernel["f"](32 if scope == "simdgroup" else 1, 32, left, right, c)
    expected = a.astype(np.float32) @ b.astype(np.float32) + np.arange(n) + 100 * np.arange(m)[:, None]
    np.testing.assert_array_equal(c, expected)


def test_the_layout_of_fragments():
    """That on which MLX relies: four elements side by side, and four in the row that is eight below."""
    source = """
    kernel void f(device int *rows, device int *columns, uint t [[thread_index_in_threadgroup]]) {
        matmul2d<matmul2d_descriptor(16, 32, 16), execution_simdgroup> op;
        auto z = op.get_destination_cooperative_tensor<int, int, float>();
        for (int i = 0; i < 16; i++) {
            columns[t * 16 + i] = z.get_multidimensional_index(i)[0];
            rows[t * 16 + i] = z.get_multidimensional_index(i)[1];
        }
    }"""
    rows, columns = np.zeros((2, 32, 16), np.int32)
    anymetal.compile(HEADER + source, version="4.0")["f"](32, 32, rows, columns)
    lane, i = np.arange(32)[:, None], np.arange(16)
    quad = lane // 4
    np.testing.assert_array_equal(rows, ((quad & 4) | (lane // 2 & 3)) + i % 8 // 4 * 8)
    np.testing.assert_array_equal(columns, ((quad & 2) | (lane & 1)) * 4 + i % 4 + i // 8 * 16)


def test_views():
    source = """
    kernel void f(device int *x, device int *out) {
        tensor<device int, extents<int, 4, dynamic_extent>, tensor_inline> t(x, extents<int, 4, dynamic_extent>(3));
        auto part = t.slice<2, 2>(1, 1);
        auto rest = t.slice(3, 0);
        out[0] = t.get_extent(0) * 10 + t.get_extent(1);
        out[1] = part.get_extent(0) * 10 + part.get_stride(1);
        out[2] = part[array<int, 2>{1, 1}];
        out[3] = rest.get_extent(0) * 10 + rest.get_extent(1);
        out[4] = rest.get_rank() * 10 + is_tensor_v<decltype(rest)>;
        part[array<int, 2>{0, 0}] = -1;
    }"""
    x, out = np.arange(12, dtype=np.int32), np.zeros(5, np.int32)
    anymetal.compile(HEADER + source, version="4.0")["f"](1, 1, x, out)
    np.testing.assert_array_equal(out, [43, 24, 10, 13, 21])
    assert x[5] == -1


REFUSED = {
    "version": ("kernel void f(device int *x) { x[0] = 1; }", "tensors need MSL 4.0"),
    "double": ("kernel void f(device float *x) { double d = x[0]; x[0] = d; }", "MSL has no type 'double'"),
    "spaces": (
        "kernel void f(device float *x) { threadgroup float *y = x; y[0] = 1; }",
        "cannot initialize a variable",
    ),
    "scope": (
        "kernel void f(device int *x) { matmul2d<matmul2d_descriptor(16, 16, 16), execution_simdgroups<2>> op;"
        "auto a = op.get_left_input_cooperative_tensor<half, half, float>();"
        "auto c = op.get_destination_cooperative_tensor<half, half, float>(); op.run(a, a, c); x[0] = c[0]; }",
        "a cooperative tensor is a factor in the scope of a thread or a simdgroup",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    source, message = REFUSED[name]
    with pytest.raises(CompileError, match=message):
        anymetal.compile(HEADER + source, version="3.2" if name == "version" else "4.0")["f"]


def test_an_operand_that_is_too_short():
    source = """
    kernel void f(device float *x, device float *z) {
        matmul2d<matmul2d_descriptor(16, 16, 16), execution_simdgroup> op;
        auto a = tensor(x, dextents<int, 2>(16, 16));
        op.run(a, a, tensor(z, dextents<int, 2>(16, 16)));
    }"""
    kernel = anymetal.compile(HEADER + source, version="4.0")["f"]
    with pytest.raises(LaunchError, match=r"(?s)<msl>:10:12: error: .* out of bounds: x\[24\d\]"):
        kernel(32, 32, np.zeros(240, np.float32), np.zeros(256, np.float32))


# ------------------------------------------------------------------------------------------------ parameters

PARAMETERS = """#include <metal_stdlib>
#include <metal_tensor>
using namespace metal;
kernel void scaled(tensor<device float, dextents<int, 2>> y [[buffer(0)]],
                   tensor<device const float, dextents<int, 2>> x, constant float &f,
                   uint2 i [[thread_position_in_grid]]) {
    const array<int, 2> at = {int(i.x), int(i.y)};
    y[at] = f * x[at];
}
using Volume = tensor<device half, dextents<ulong, 3>>;
kernel void sizes(Volume x [[buffer(1)]], device long *out [[buffer(4)]]) {
    for (uint i = 0; i < 3; i++) {
        out[i] = x.get_extent(i);
        out[3 + i] = x.get_stride(i);
    }
}"""


@pytest.fixture(scope="module")
def parameters():
    return anymetal.compile(PARAMETERS, version="4.0")


def test_tensors_as_parameters(parameters):
    x, y, out = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros((5, 8), np.float32), np.zeros(6, np.int64)
    expected = y.copy()
    expected[1:4, 2:6] = 2 * x
    launch = parameters["scaled"]((4, 3), 4, y[1:4, 2:6], x, 2)
    np.testing.assert_array_equal(y, expected)
    assert (dict(launch.changed), dict(launch.written)) == ({0: 11}, {0: 12})
    parameters["sizes"](1, 1, np.zeros((2, 3, 4), np.float16), out)
    assert out.tolist() == [4, 3, 2, 1, 4, 12]
    parameters["sizes"](1, 1, np.zeros((4, 6, 5), np.float16)[::2, 1::3], out)
    assert out.tolist() == [5, 2, 2, 1, 15, 60]
    (row, _, _) = parameters.kernels["scaled"]["arguments"]
    assert [row[key] for key in ("dtype", "bytes", "written", "rank")] == ["float32", 4, True, 2]


def test_tensors_in_a_process_of_its_own():
    x, y = np.ones((2, 2), np.float32), np.zeros((2, 4), np.float32)
    anymetal.compile(PARAMETERS, version="4.0", isolate=True)["scaled"]((2, 2), 2, y[:, 1:3], x, 3)
    assert y.tolist() == [[0, 3, 3, 0], [0, 3, 3, 0]]


def test_a_tensor_that_is_too_small(parameters):
    with pytest.raises(anymetal.LaunchError, match=r"reads 4 bytes out of bounds: data\[1\d\].* of buffer\(1\)\.data"):
        parameters["scaled"]((4, 4), 4, np.zeros((4, 4), "f"), np.ones((3, 4), "f"), 2)


Y = np.zeros((4, 4), np.float32)
WRONG_TENSORS = {
    "columns": (Y[:, ::2], r"the strides of the array are \(16, 8\) bytes; .* that of the last axis is 4"),
    "reversed": (Y[::-1], "positive multiples of 4"),
    "transposed": (Y.T, "that of the last axis is 4"),
    "repeated": (np.broadcast_to(Y[:1], (4, 4)), "the array is read-only"),
    "dimensions": (Y[0], "it has 2 dimensions, and the array 1"),
    "dtype": (Y.astype("f8"), "its elements have the dtype float32, not float64"),
    "empty": (Y[:0], "the array has no elements"),
    "number": (3.0, "a tensor is an array of NumPy, without an offset, not 3.0"),
    "none": (None, "a tensor is an array of NumPy"),
    "offset": (anymetal.at(Y, 16), "without an offset"),
}


@pytest.mark.parametrize("wrong", WRONG_TENSORS)
def test_arrays_that_are_no_tensors(parameters, wrong):
    array, message = WRONG_TENSORS[wrong]
    with pytest.raises((anymetal.LaunchError, TypeError), match=message):
        parameters["scaled"]((1, 1), 1, array, Y, 2)


def test_a_parameter_with_fixed_extents_is_refused():
    source = PARAMETERS.replace(
        "tensor<device float, dextents<int, 2>> y", "tensor<device float, extents<int, 4, 4>> y"
    )
    with pytest.raises(anymetal.CompileError, match="the extents of a tensor that is a parameter are dynamic"):
        anymetal.compile(source, version="4.0")["scaled"]
