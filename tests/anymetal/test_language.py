"""Small MSL programs on the clang runtime, and on an NVIDIA GPU: each feature of the language against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import anymetal
from anymetal import CompileError, Device, clang, cuda

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))


@pytest.fixture(scope="module", params=["clang", pytest.param("cuda", marks=pytest.mark.nvidia)])
def device(request: pytest.FixtureRequest) -> Device:
    return clang.Device() if request.param == "clang" else cuda.open_device()


def processor_only(device):
    if not isinstance(device, clang.Device):
        pytest.skip("on an NVIDIA GPU all threads of a SIMD group take part in a simdgroup function")


def contents(buffer, dtype):
    return np.asarray(buffer).view(dtype)


def run(device, source, name, count, *arguments, out=np.float32, length=None):
    """Launch with one more buffer, filled with NaN, at the end; return what the kernel wrote there."""
    dtype = np.dtype(out)
    buffer = device.buffer((count if length is None else length) * dtype.itemsize)
    buffer[:] = 0xFF
    handle = device.kernel(HEADER + source).function(name)(count, *arguments, buffer)
    del handle
    return contents(buffer, dtype)


@pytest.mark.parametrize(
    ("declaration", "version", "needed"), [("atomic_float", "2.3", "3.0"), ("atomic_ulong", "2.3", "2.4")]
)
def test_a_type_of_a_later_version_is_named_with_it(declaration, version, needed):
    source = HEADER + f"kernel void f(device {declaration} *x) {{}}"
    with pytest.raises(CompileError, match=f"'{declaration}'.*; it needs version='{needed}' or later") as raised:
        clang.Device().kernel(source, version=version)
    assert "shim" not in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 4


def per_element(expression, kind="float", name="f"):
    """A kernel that computes an expression of `x`, `y` and `z` for each element."""
    return f"""
    [[max_total_threads_per_threadgroup(32)]]
    kernel void {name}(device const {kind}* xs [[buffer(0)]], device const {kind}* ys [[buffer(1)]],
                  device const {kind}* zs [[buffer(2)]], constant uint& n [[buffer(3)]],
                  device {kind}* out [[buffer(4)]], uint i [[thread_position_in_grid]]) {{
        if (i >= n) return;
        {kind} x = xs[i], y = ys[i], z = zs[i];
        out[i] = {expression};
    }}"""


def elementwise(device, source, name, x, y=None, z=None):
    n = np.uint32(len(x))
    y, z = x if y is None else y, x if z is None else z
    return run(device, source, name, len(x), x, y, z, n, out=x.dtype)


def test_a_threadgroup_variable_that_is_not_used(device):
    source = """
    constant bool shared = false;
    [[max_total_threads_per_threadgroup(32)]]
    kernel void f(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
        threadgroup float tile[32];
        if (shared) {
            tile[i % 32] = 1.0f;
        }
        out[i] = float(i);
    }"""
    np.testing.assert_array_equal(run(device, source, "f", 64), np.arange(64))


def test_the_length_of_a_threadgroup_variable_may_be_a_product(device):
    """It is shared all the same: the `*` is no pointer."""
    source = """
    [[max_total_threads_per_threadgroup(64)]]
    kernel void turned(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                       uint t [[thread_position_in_threadgroup]]) {
        threadgroup float4 tile[2 * 32 / 4];
        threadgroup float* values = (threadgroup float*)tile;
        values[t] = x[t];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        out[t] = values[63 - t];
    }"""
    x = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(run(device, source, "turned", 64, x), x[::-1])


def test_sine_of_every_element(device):
    """The example with which metalcompute introduces itself, with the bounds check that the rounded-up grid needs."""
    source = """
    kernel void sines(device const float* angles [[buffer(0)]], device float* results [[buffer(1)]],
                      constant uint& n [[buffer(2)]], uint index [[thread_position_in_grid]]) {
        if (index < n) results[index] = sin(angles[index]);
    }"""
    angles = np.linspace(-7, 7, 12345, dtype=np.float32)
    results = device.buffer(angles.nbytes)
    handle = device.kernel(HEADER + source).function("sines")(angles.size, angles, results, np.uint32(angles.size))
    del handle
    np.testing.assert_allclose(contents(results, "f"), np.sin(angles.astype(float)), atol=1e-6)


def test_struct_parameters_helpers_and_constants(device):
    source = """
    constant int TAPS = 3;
    constant float WEIGHTS[TAPS] = {0.25, 0.5, 0.25};
    struct Shape { uint length; float scale; float3 offset; };

    inline float tap(device const float* x, Shape shape, int at) {
        return at < 0 || at >= int(shape.length) ? 0.0f : x[at];
    }
    kernel void smooth(device const float* x [[buffer(0)]], constant Shape& shape [[buffer(1)]],
                       device float* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
        Shape copy = shape;
        if (i >= copy.length) return;
        float sum = 0;
        for (int k = 0; k < TAPS; ++k) sum += WEIGHTS[k] * tap(x, copy, int(i) + k - 1);
        out[i] = sum * shape.scale + shape.offset.z;
    }"""
    x = np.arange(50, dtype=np.float32)
    # a float3 has the size and the alignment of a float4
    shape = np.zeros(1, np.dtype([("length", "u4"), ("scale", "f4"), ("pad", "V8"), ("offset", "f4", 4)]))
    shape["length"], shape["scale"], shape["offset"][0, 2] = 50, 2.0, 7.0
    result = run(device, source, "smooth", 50, x, shape)
    np.testing.assert_array_equal(result, 2 * np.convolve(x, [0.25, 0.5, 0.25], "same").astype("f") + 7)


def test_vectors_swizzles_and_constructors(device):
    source = """
    kernel void vectors(device const float4* in [[buffer(0)]], constant uint& n [[buffer(1)]],
                        device float4* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
        if (i >= n) return;
        float4 v = in[i];
        float4 w = float4(v.wz, v.x, 1.0);
        w.xy = v.yx + 1;
        w.z *= 2;
        int4 whole = int4(v);
        uchar4 bytes = uchar4(uint4(whole.xyzw) & 255u);
        float3 three = float3(2);
        three.y = v[3];
        half2 small = half2(v.xy);
        out[i] = w + float4(bytes) + float4(three, 0) + float4(small.yx, float2{0, 5}) + v.rgba * 0.5;
    }"""
    x = np.random.default_rng(1).integers(0, 200, (37, 4)).astype(np.float32)
    result = run(device, source, "vectors", 37, x, np.uint32(37), length=37 * 4).reshape(-1, 4)
    w = np.stack([x[:, 1] + 1, x[:, 0] + 1, 2 * x[:, 0], np.ones(37)], 1)
    expected = w + x + 0.5 * x
    expected[:, 0] += 2 + x[:, 1]
    expected[:, 1] += x[:, 3] + x[:, 0]
    expected[:, 2] += 2
    expected[:, 3] += 5
    np.testing.assert_array_equal(result, expected.astype("f"))


def test_half_rounds_after_every_operation(device):
    rng = np.random.default_rng(2)
    x, y, z = (rng.standard_normal(500).astype(np.float16) for _ in range(3))
    source = per_element("x * y", "half", "product") + per_element("x * 1.5h", "half", "literal")
    source += per_element("(x + y) + z", "half", "total")
    np.testing.assert_array_equal(elementwise(device, source, "product", x, y, z), x * y)
    np.testing.assert_array_equal(elementwise(device, source, "literal", x), x * np.float16(1.5))
    total = elementwise(device, source, "total", x, y, z)
    np.testing.assert_array_equal(total, (x + y) + z)
    assert (total != ((x.astype("f") + y) + z).astype("e")).any()  # one rounding at the end would differ


def test_half_storage_with_float_arithmetic(device):
    x = np.random.default_rng(3).standard_normal(100).astype(np.float16)
    result = elementwise(device, per_element("half(float(x) * float(x) + 0.5)", "half"), "f", x)
    np.testing.assert_array_equal(result, (x.astype("f") ** 2 + np.float32(0.5)).astype("e"))


def test_literals_are_single_precision(device):
    x = np.random.default_rng(4).standard_normal(1000).astype(np.float32)
    result = elementwise(device, per_element("x * 0.1"), "f", x)
    np.testing.assert_array_equal(result, x * np.float32(0.1))
    assert (result != (x.astype(float) * 0.1).astype("f")).any()


def test_templates_and_overloads(device):
    source = """
    template <typename T> T largest(T a, T b) { return a < b ? b : a; }
    template <typename T, int N> T total(device const T* x, uint first) {
        T sum = 0;
        for (int k = 0; k < N; ++k) sum += x[first + k];
        return sum;
    }
    template <typename T> void exchange(thread T& a, thread T& b) { T c = a; a = b; b = c; }
    kernel void sums(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                     uint i [[thread_position_in_grid]]) {
        if (i >= 10) return;
        float a = total<float, 4>(x, 4 * i), b = i;
        exchange(a, b);
        out[i] = largest(a, b) + largest(int(i), 3);
    }"""
    x = np.random.default_rng(5).integers(0, 50, 40).astype(np.float32)
    i = np.arange(10)
    expected = np.maximum(x.reshape(10, 4).sum(1), i) + np.maximum(i, 3)
    np.testing.assert_array_equal(run(device, source, "sums", 10, x), expected)


def test_several_kernels_share_macros_and_types(device):
    source = """
    #define APPLY(NAME, OPERATOR) \\
        kernel void NAME(device const int* a [[buffer(0)]], device const int* b [[buffer(1)]], \\
                         device int* out [[buffer(2)]], uint i [[thread_position_in_grid]]) { \\
            if (i < 20) out[i] = a[i] OPERATOR b[i]; \\
        }
    APPLY(add, +)
    APPLY(subtract, -)
    #if __METAL_VERSION__ >= 230
    APPLY(multiply, *)
    #endif
    """
    a, b = np.arange(20, dtype=np.int32), np.arange(20, 40, dtype=np.int32)
    for name, expected in {"add": a + b, "subtract": a - b, "multiply": a * b}.items():
        np.testing.assert_array_equal(run(device, source, name, 20, a, b, out=np.int32), expected)


REDUCE = """
[[max_total_threads_per_threadgroup(256)]]
kernel void reduce(device const float* x [[buffer(0)]], constant uint& n [[buffer(1)]],
                   device float* out [[buffer(2)]],
                   uint t [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
                   uint i [[thread_position_in_grid]], uint size [[threads_per_threadgroup]]) {
    threadgroup float tile[256];
    tile[t] = i < n ? x[i] : 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint step = size / 2; step > 0; step /= 2) {
        if (t < step) tile[t] += tile[t + step];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (t == 0) out[group] = tile[0];
}"""


def test_threadgroup_reduction(device):
    x = np.random.default_rng(6).integers(-100, 100, 1000).astype(np.float32)
    result = run(device, REDUCE, "reduce", 1000, x, np.uint32(1000), length=4)
    np.testing.assert_array_equal(result, np.pad(x, (0, 24)).reshape(4, 256).sum(1))


def test_threadgroup_memory_in_helpers(device):
    source = """
    void rotate_tile(threadgroup int* tile, threadgroup const int* from, uint t) { tile[t] = from[(t + 1) % 64]; }
    [[max_total_threads_per_threadgroup(64)]]
    kernel void rotated(device int* out [[buffer(0)]], uint t [[thread_index_in_threadgroup]],
                        uint i [[thread_position_in_grid]]) {
        threadgroup int a[64], b[64];
        threadgroup int* pointer = a;
        pointer[t] = int(t * t);
        threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
        rotate_tile(b, a, t);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        out[i] = b[63 - t];
    }"""
    t = np.arange(64)
    expected = ((64 - t) % 64) ** 2
    np.testing.assert_array_equal(run(device, source, "rotated", 128, out=np.int32), np.tile(expected, 2))


def test_barriers_behind_calls_types_and_templates(device):
    source = """
    struct Tile {
        uint t;
        int rotate(threadgroup int* tile) const {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            return tile[(t + 1) % 64];
        }
    };
    Tile make(uint t) { return Tile{t}; }
    template <typename F> int through(F f, threadgroup int* tile) { return f.rotate(tile); }
    [[max_total_threads_per_threadgroup(64)]]
    kernel void f(device int* out [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {
        threadgroup int tile[64];
        tile[t] = int(t);
        auto maker = make(t);
        out[t] = through(maker, tile);
    }"""
    np.testing.assert_array_equal(run(device, source, "f", 64, out=np.int32), (np.arange(64) + 1) % 64)


def test_both_operands_of_a_uniform_condition_are_evaluated(device):
    source = """
    #include <metal_stdlib>
    using namespace metal;
    static bool count(device int *x) { return ++*x > 0; }
    kernel void f(constant int &n, device int *out, uint i [[thread_position_in_grid]]) {
        const uniform<int> size = make_uniform(n);
        const uniform<int> left = size % 4;
        out[i] = 10 * (size / 4 + left);
        if (left > 0 && count(out + i)) out[i] += 100;
        if (n > 100 && count(out + i)) out[i] += 1000;
    }
    """
    np.testing.assert_array_equal(run(device, source, "f", 1024, np.int32(8), out=np.int32, length=1024), 21)


def test_thread_attributes(device):
    source = """
    [[max_total_threads_per_threadgroup(96)]]
    kernel void where(device ushort* out [[buffer(0)]], uint3 grid [[thread_position_in_grid]],
                      ushort inside [[thread_position_in_threadgroup]], uint2 group [[threadgroup_position_in_grid]],
                      uint size [[threads_per_threadgroup]], uint total [[threads_per_grid]],
                      uint groups [[threadgroups_per_grid]], ushort index [[thread_index_in_threadgroup]],
                      ushort lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
                      uint width [[threads_per_simdgroup]], uint execution [[thread_execution_width]],
                      uint simds [[simdgroups_per_threadgroup]]) {
        device ushort* row = out + 16 * grid.x;
        row[0] = grid.x; row[1] = grid.y; row[2] = grid.z; row[3] = inside; row[4] = group.x; row[5] = group.y;
        row[6] = size; row[7] = total; row[8] = groups; row[9] = index; row[10] = lane; row[11] = simd;
        row[12] = width; row[13] = execution; row[14] = simds; row[15] = 0;
    }"""
    result = run(device, source, "where", 100, out=np.uint16, length=192 * 16).reshape(192, 16)
    i = np.arange(192)
    t = i % 96
    columns = [i, 0, 0, t, i // 96, 0, 96, 192, 2, t, t % 32, t // 32, 32, 32, 3, 0]
    np.testing.assert_array_equal(result, np.stack([np.broadcast_to(c, 192) for c in columns], 1))


SIMD = """
[[max_total_threads_per_threadgroup(128)]]
kernel void {name}(device const {type}* x [[buffer(0)]], device {type}* out [[buffer(1)]],
          uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {{
    {type} v = x[i];
    out[i] = {expression};
}}"""


SIMD_FUNCTIONS = [
    ("simd_sum(v)", lambda v: v.sum(1, keepdims=True)),
    ("simd_max(v)", lambda v: v.max(1, keepdims=True)),
    ("simd_min(v)", lambda v: v.min(1, keepdims=True)),
    ("simd_and(v)", lambda v: np.bitwise_and.reduce(v, 1, keepdims=True)),
    ("simd_or(v)", lambda v: np.bitwise_or.reduce(v, 1, keepdims=True)),
    ("simd_xor(v)", lambda v: np.bitwise_xor.reduce(v, 1, keepdims=True)),
    ("simd_product((v & 1) + 1)", lambda v: ((v & 1) + 1).prod(1, keepdims=True, dtype=np.int32)),
    ("simd_shuffle(v, ushort(31 - lane))", lambda v: v[:, ::-1]),
    ("simd_shuffle_xor(v, 5)", lambda v: v[:, np.arange(32) ^ 5]),
    ("simd_shuffle_down(v, 3)", lambda v: v[:, np.where(np.arange(32) < 29, np.arange(32) + 3, np.arange(32))]),
    ("simd_shuffle_up(v, 3)", lambda v: v[:, np.where(np.arange(32) >= 3, np.arange(32) - 3, np.arange(32))]),
    ("simd_broadcast(v, 7)", lambda v: v[:, 7:8]),
    ("simd_broadcast_first(v)", lambda v: v[:, :1]),
    ("simd_prefix_inclusive_sum(v)", lambda v: v.cumsum(1, dtype=np.int32)),
    ("simd_prefix_exclusive_sum(v)", lambda v: v.cumsum(1, dtype=np.int32) - v),
    ("int(simd_all(v > -50))", lambda v: (v > -50).all(1, keepdims=True)),
    ("int(simd_any(v > 50))", lambda v: (v > 50).any(1, keepdims=True)),
    ("int(simd_vote::vote_t(simd_ballot(v > 0)) >> lane & 1)", lambda v: v > 0),
    ("lane < 10 ? simd_sum(v) : -1", lambda v: np.where(np.arange(32) < 10, v[:, :10].sum(1, keepdims=True), -1)),
    (
        "lane % 2 ? simd_max(v) : simd_min(v)",
        lambda v: np.where(np.arange(32) % 2, v[:, 1::2].max(1, keepdims=True), v[:, ::2].min(1, keepdims=True)),
    ),
]  # fmt: skip
SIMD_KERNELS = "".join(SIMD.format(type="int", name=f"f{i}", expression=row[0]) for i, row in enumerate(SIMD_FUNCTIONS))


@pytest.mark.parametrize("number", range(len(SIMD_FUNCTIONS)), ids=[row[0] for row in SIMD_FUNCTIONS])
def test_simdgroup_functions(device, number):
    expression, expected = SIMD_FUNCTIONS[number]
    if "?" in expression:
        processor_only(device)
    x = np.random.default_rng(7).integers(-60, 60, 256).astype(np.int32)
    result = run(device, SIMD_KERNELS, f"f{number}", 256, x, out=np.int32)
    np.testing.assert_array_equal(result.reshape(8, 32), np.broadcast_to(expected(x.reshape(8, 32)), (8, 32)))


def test_simdgroup_functions_of_floats_and_vectors(device):
    x = np.random.default_rng(8).integers(-60, 60, 1024).astype(np.float32)
    source = SIMD.format(type="float4", name="total", expression="simd_sum(v)")
    source += SIMD.format(type="half", name="turned", expression="simd_shuffle_xor(v, 1)")
    total = run(device, source, "total", 256, x, length=1024)
    expected = np.broadcast_to(x.reshape(8, 32, 4).sum(1, keepdims=True), (8, 32, 4))
    np.testing.assert_array_equal(total.reshape(8, 32, 4), expected)
    halves = x[:256].astype(np.float16)
    turned = run(device, source, "turned", 256, halves, out=np.float16)
    np.testing.assert_array_equal(turned.reshape(-1, 2), halves.reshape(-1, 2)[:, ::-1])


def test_lanes_that_leave_a_loop_early_meet_again_after_it(device):
    processor_only(device)
    source = """
    [[max_total_threads_per_threadgroup(32)]]
    kernel void f(device int* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {
        int sum = 0;
        for (uint k = 0; k <= lane; ++k) sum += simd_sum(1);
        out[lane] = sum + 1000 * simd_sum(1);
    }"""
    active = 32 - np.arange(32)  # lanes 0 .. k-1 have left the loop by its turn k
    expected = np.cumsum(active) + 32000
    np.testing.assert_array_equal(run(device, source, "f", 32, out=np.int32), expected)


def test_two_level_reduction_with_simdgroups(device):
    source = """
    [[max_total_threads_per_threadgroup(512)]]
    kernel void reduce(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                       uint i [[thread_position_in_grid]], uint group [[threadgroup_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
                       uint simds [[simdgroups_per_threadgroup]]) {
        threadgroup float partial[32];
        float sum = simd_sum(x[i]);
        if (lane == 0) partial[simd] = sum;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (simd == 0) {
            sum = simd_sum(lane < simds ? partial[lane] : 0.0f);
            if (lane == 0) out[group] = sum;
        }
    }"""
    x = np.random.default_rng(9).integers(-100, 100, 2048).astype(np.float32)
    np.testing.assert_array_equal(run(device, source, "reduce", 2048, x, length=4), x.reshape(4, 512).sum(1))


def test_atomic_histogram(device):
    source = """
    [[max_total_threads_per_threadgroup(128)]]
    kernel void histogram(device const uchar* x [[buffer(0)]], constant uint& n [[buffer(1)]],
                          device atomic_uint* bins [[buffer(2)]], uint t [[thread_index_in_threadgroup]],
                          uint i [[thread_position_in_grid]]) {
        threadgroup atomic_uint mine[16];
        if (t < 16) atomic_store_explicit(&mine[t], 0u, memory_order_relaxed);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (i < n) atomic_fetch_add_explicit(&mine[x[i] % 16], 1u, memory_order_relaxed);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (t < 16) {
            uint count = atomic_load_explicit(&mine[t], memory_order_relaxed);
            atomic_fetch_add_explicit(&bins[t], count, memory_order_relaxed);
        }
    }"""
    x = np.random.default_rng(10).integers(0, 256, 5000).astype(np.uint8)
    bins = device.buffer(64)
    handle = device.kernel(HEADER + source).function("histogram")(5000, x, np.uint32(5000), bins)
    del handle
    np.testing.assert_array_equal(contents(bins, np.uint32), np.bincount(x % 16, minlength=16))


def test_other_atomics(device):
    source = """
    kernel void all(device const int* x [[buffer(0)]], device metal::atomic_int* out [[buffer(1)]],
                    uint i [[thread_position_in_grid]]) {
        atomic_fetch_max_explicit(&out[0], x[i], memory_order_relaxed);
        atomic_fetch_min_explicit(&out[1], x[i], memory_order_relaxed);
        atomic_fetch_or_explicit(&out[2], x[i] & 255, memory_order_relaxed);
        atomic_fetch_and_explicit(&out[3], x[i] | 256, memory_order_relaxed);
        atomic_fetch_xor_explicit(&out[4], x[i], memory_order_relaxed);
        atomic_fetch_sub_explicit(&out[5], x[i], memory_order_relaxed);
        int expected = atomic_load_explicit(&out[6], memory_order_relaxed);
        while (!atomic_compare_exchange_weak_explicit(&out[6], &expected, expected + 2, memory_order_relaxed,
                                                      memory_order_relaxed)) {}
        if (i == 5) atomic_exchange_explicit(&out[7], 77, memory_order_relaxed);
    }"""
    x = np.random.default_rng(11).integers(-1000, 1000, 1024).astype(np.int32)
    out = device.buffer(np.array([-(2**31), 2**31 - 1, 0, -1, 0, 0, 0, 0], np.int32))
    handle = device.kernel(HEADER + source).function("all")(1024, x, out)
    del handle
    expected = [
        x.max(), x.min(), np.bitwise_or.reduce(x & 255), np.bitwise_and.reduce(x | 256),
        np.bitwise_xor.reduce(x), -x.sum(), 2048, 77,
    ]  # fmt: skip
    np.testing.assert_array_equal(contents(out, np.int32), expected)


POSITIVE = np.random.default_rng(12).uniform(0.01, 20, 400).astype(np.float32)
SIGNED = np.random.default_rng(13).uniform(-4, 4, 400).astype(np.float32)
UNIT = np.random.default_rng(14).uniform(-0.99, 0.99, 400).astype(np.float32)

FUNCTIONS = [
    ("exp(x)", np.exp, SIGNED),
    ("exp2(x)", np.exp2, SIGNED),
    ("exp10(x)", lambda x: 10.0**x, SIGNED),
    ("log(x)", np.log, POSITIVE),
    ("log2(x)", np.log2, POSITIVE),
    ("log10(x)", np.log10, POSITIVE),
    ("sqrt(x)", np.sqrt, POSITIVE),
    ("rsqrt(x)", lambda x: 1 / np.sqrt(x), POSITIVE),
    ("pow(x, y)", lambda x, y: x**y, POSITIVE, UNIT),
    ("powr(x, y)", lambda x, y: x**y, POSITIVE, UNIT),
    ("sin(x)", np.sin, SIGNED),
    ("cos(x)", np.cos, SIGNED),
    ("tan(x)", np.tan, UNIT),
    ("asin(x)", np.arcsin, UNIT),
    ("acos(x)", np.arccos, UNIT),
    ("atan(x)", np.arctan, SIGNED),
    ("atan2(x, y)", np.arctan2, SIGNED, UNIT),
    ("sinh(x)", np.sinh, SIGNED),
    ("cosh(x)", np.cosh, SIGNED),
    ("tanh(x)", np.tanh, SIGNED),
    ("fast::exp(x)", np.exp, SIGNED),
    ("precise::tanh(x)", np.tanh, SIGNED),
    ("metal::fast::sin(x)", np.sin, SIGNED),
    ("metal::precise::log(x)", np.log, POSITIVE),
    ("floor(x)", np.floor, SIGNED),
    ("ceil(x)", np.ceil, SIGNED),
    ("rint(x)", np.rint, SIGNED),
    ("trunc(x)", np.trunc, SIGNED),
    ("round(x)", lambda x: np.trunc(x + np.copysign(0.5, x)), SIGNED),
    ("fract(x)", lambda x: x - np.floor(x), SIGNED),
    ("fabs(x) + abs(y)", lambda x, y: abs(x) + abs(y), SIGNED, UNIT),
    ("fma(x, y, z)", lambda x, y, z: x * y + z, SIGNED, UNIT, POSITIVE),
    ("max(x, y) - fmax(x, z)", lambda x, y, z: np.maximum(x, y) - np.maximum(x, z), SIGNED, UNIT, POSITIVE),
    ("min(x, y) - fmin(x, z)", lambda x, y, z: np.minimum(x, y) - np.minimum(x, z), SIGNED, UNIT, POSITIVE),
    ("clamp(x, -1.0, 2.0f)", lambda x: np.clip(x, -1, 2), SIGNED),
    ("saturate(x)", lambda x: np.clip(x, 0, 1), SIGNED),
    ("mix(x, y, z)", lambda x, y, z: x + (y - x) * z, SIGNED, POSITIVE, UNIT),
    ("step(y, x)", lambda x, y: (x >= y) * 1.0, SIGNED, UNIT),
    ("smoothstep(-2.0, 2.0, x)", lambda x: (t := np.clip((x + 2) / 4, 0, 1)) * t * (3 - 2 * t), SIGNED),
    ("sign(x)", np.sign, SIGNED),
    ("fmod(x, y)", np.fmod, POSITIVE, UNIT),
    ("copysign(x, y)", np.copysign, POSITIVE, UNIT),
    ("ldexp(x, 3)", lambda x: x * 8, SIGNED),
    ("select(x, y, x > 0)", lambda x, y: np.where(x > 0, y, x), SIGNED, UNIT),
    ("float(all(float2(x, y) > 0)) + 2 * float(any(float3(x, y, 0) > 0))",
     lambda x, y: ((x > 0) & (y > 0)) + 2.0 * ((x > 0) | (y > 0)), SIGNED, UNIT),
    ("dot(float3(x, y, 2), float3(y, 1, x))", lambda x, y: x * y + y + 2 * x, SIGNED, UNIT),
    ("cross(float3(x, y, z), float3(1, 2, 3)).y", lambda x, y, z: z - 3 * x, SIGNED, UNIT, POSITIVE),
    ("length(float4(x, y, z, 1))", lambda x, y, z: np.sqrt(x * x + y * y + z * z + 1), SIGNED, UNIT, POSITIVE),
    ("distance(float2(x, y), float2(z, 0))", lambda x, y, z: np.hypot(x - z, y), SIGNED, UNIT, POSITIVE),
    ("normalize(float3(x, y, z)).z", lambda x, y, z: z / np.sqrt(x * x + y * y + z * z), SIGNED, UNIT, POSITIVE),
    ("max(float4(x), float4(y, z, 0, 1)).y", lambda x, y, z: np.maximum(x, z), SIGNED, UNIT, POSITIVE),
    ("exp(half4(half(x)) * 0.5h).w", lambda x: np.exp(x.astype("e") / 2).astype("e"), SIGNED),
    ("M_PI_F + FLT_EPSILON * x", lambda x: np.pi + 0 * x, SIGNED),
    ("numeric_limits<float>::max() * step(0.0f, x)", lambda x: np.finfo("f").max * (x >= 0.0), SIGNED),
    ("float(numeric_limits<half>::lowest()) + HALF_MAX + x", lambda x: x, SIGNED),
]  # fmt: skip


# one source with a kernel for each expression compiles much faster than a source for each
FUNCTION_KERNELS = "".join(per_element(row[0], "float", f"f{i}") for i, row in enumerate(FUNCTIONS))


@pytest.mark.parametrize("number", range(len(FUNCTIONS)), ids=[row[0] for row in FUNCTIONS])
def test_floating_point_functions(device, number):
    expression, function, *inputs = FUNCTIONS[number]
    result = elementwise(device, FUNCTION_KERNELS, f"f{number}", *inputs)
    expected = function(*(x.astype(float) for x in inputs))
    tolerance = 2e-3 if "half" in expression else 4e-6
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


def test_infinity_is_a_value(device):
    result = elementwise(device, per_element("x > 0 ? INFINITY : -MAXFLOAT"), "f", SIGNED)
    np.testing.assert_array_equal(result, np.where(SIGNED > 0, np.float32(np.inf), np.finfo("f").min))


def test_functions_with_two_results(device):
    source = """
    float combined(float x) {
        float cosine, whole;
        int e;
        float sine = sincos(x, cosine), part = modf(x, whole), fraction = frexp(x, e);
        return sine + 10 * cosine + 100 * whole + 1000 * fraction + 10000 * e + 100000 * part;
    }"""
    result = elementwise(device, source + per_element("combined(x)"), "f", SIGNED)
    x = SIGNED.astype(float)
    fraction, e = np.frexp(x)
    expected = np.sin(x) + 10 * np.cos(x) + 100 * np.trunc(x) + 1000 * fraction + 10000 * e + 100000 * np.modf(x)[0]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=0.05)


INTEGERS = np.random.default_rng(15).integers(-(2**31), 2**31, 300).astype(np.int32)
OTHERS = np.random.default_rng(16).integers(-1000, 1000, 300).astype(np.int32)


def bits(x):
    return (x.astype(np.uint32)[:, None] >> np.arange(32, dtype=np.uint32)) & 1


INTEGER_FUNCTIONS = [
    ("popcount(x)", lambda x, y: bits(x).sum(1)),
    ("clz(x)", lambda x, y: 32 - np.ceil(np.log2(x.astype(np.uint32) + 1.0))),
    ("ctz(x)", lambda x, y: np.argmax(bits(x), 1)),
    ("reverse_bits(uint(x)) >> 16", lambda x, y: (bits(x)[:, :16] << np.arange(15, -1, -1)).sum(1)),
    ("rotate(uint(x), 5u) & 0xffff", lambda x, y: (x.astype(np.uint32) << 5 | x.astype(np.uint32) >> 27) & 0xFFFF),
    ("mulhi(x, y)", lambda x, y: x.astype(np.int64) * y >> 32),
    ("mad24(y, 3, x / 4)", lambda x, y: y * 3 + np.trunc(x / 4).astype(np.int32)),
    ("mul24(y, y)", lambda x, y: y * y),
    ("abs(y) + min(x, y) / 2 - max(y, 7)", lambda x, y: abs(y) + np.trunc(np.minimum(x, y) / 2) - np.maximum(y, 7)),
    ("clamp(y, -5, 9)", lambda x, y: np.clip(y, -5, 9)),
    ("absdiff(uint(y & 255), 77u)", lambda x, y: abs((y & 255) - 77)),
    ("hadd(y, 13)", lambda x, y: (y + 13) >> 1),
    ("as_type<int>(float(y))", lambda x, y: y.astype("f").view(np.int32)),
    ("int(as_type<half>(short(0x3c00)) * 5)", lambda x, y: 0 * y + 5),
    ("select(x, y, true)", lambda x, y: y),
    ("int(max(uint2(uint(y & 15), 3u), uint2(4u, 2u)).x)", lambda x, y: np.maximum(y & 15, 4)),
    ("INT_MAX - int(UINT_MAX >> 1) + CHAR_BIT", lambda x, y: 0 * y + 8),
    ("int(char(y)) + int(uchar(y))", lambda x, y: y.astype(np.int8).astype(int) + y.astype(np.uint8)),
]  # fmt: skip
INTEGER_KERNELS = "".join(per_element(row[0], "int", f"f{i}") for i, row in enumerate(INTEGER_FUNCTIONS))


@pytest.mark.parametrize("number", range(len(INTEGER_FUNCTIONS)), ids=[row[0] for row in INTEGER_FUNCTIONS])
def test_integer_functions(device, number):
    result = elementwise(device, INTEGER_KERNELS, f"f{number}", INTEGERS, OTHERS)
    np.testing.assert_array_equal(result, INTEGER_FUNCTIONS[number][1](INTEGERS, OTHERS))


def test_packed_vectors_and_implicit_buffer_indices(device):
    source = """
    struct Pair { packed_float2 a; float b; };
    kernel void f(device const Pair* pairs, constant uint& n, device float2* out,
                  uint i [[thread_position_in_grid]]) {
        if (i < n) out[i] = pairs[i].a * pairs[i].b;
    }"""
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    result = run(device, source, "f", 10, x, np.uint32(10), length=20).reshape(10, 2)
    np.testing.assert_array_equal(result, x[:, :2] * x[:, 2:])


def test_indices_beyond_two_to_the_31(device):
    source = """
    kernel void f(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
        if (i >= 2147483648u) out[i - 2147483648u] = i;
    }"""
    fast = clang.Device(check_order=False) if isinstance(device, clang.Device) else device
    result = run(fast, source, "f", 2**31 + 1024, out=np.uint32, length=1024)
    np.testing.assert_array_equal(result, 2**31 + np.arange(1024))


def test_an_enumeration_that_is_shared_with_the_host(device):
    """As in the template of Xcode: the macro makes two declarations of the enumeration, one with its type."""
    source = """
    #define NS_ENUM(_type, _name) enum _name : _type _name; enum _name : _type
    typedef NS_ENUM(int, Index) { IndexOut = 0 };
    [[max_total_threads_per_threadgroup(32)]]
    kernel void f(device float* out [[buffer(IndexOut)]], uint i [[thread_position_in_grid]]) { out[i] = i; }"""
    np.testing.assert_array_equal(run(device, source, "f", 32), np.arange(32))


def test_members_that_return_their_object(device):
    source = """
    struct Sum {
        float value;
        thread Sum& operator+=(float x) { value += x; return *this; }
        thread Sum* self() { return this; }
        void copy_to(thread Sum& other) const { const thread Sum& me = *this; other = me; }
    };
    [[max_total_threads_per_threadgroup(32)]]
    kernel void f(device float* out, uint i [[thread_position_in_grid]]) {
        Sum a{1}, b;
        (a += i) += 2;
        a.self()->copy_to(b);
        out[i] = b.value;
    }"""
    np.testing.assert_array_equal(run(device, source, "f", 32), np.arange(32) + 3)
    for wrong in ("thread float& x = *out;", "Sum a; device Sum* p = a.self();"):
        with pytest.raises(CompileError, match=r"changes address space|cannot initialize"):
            device.kernel(HEADER + source.replace("Sum a{1}, b;", f"{wrong} Sum a{{1}}, b;"))


def test_a_pointer_to_rows_of_threadgroup_memory(device):
    source = """
    [[max_total_threads_per_threadgroup(32)]]
    kernel void f(device float* out, uint t [[thread_position_in_threadgroup]]) {
        threadgroup float tile[4][8];
        threadgroup float (*rows)[8] = tile;
        rows[t / 8][t % 8] = t;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        out[t] = tile[3 - t / 8][t % 8];
    }"""
    np.testing.assert_array_equal(run(device, source, "f", 32), np.arange(32).reshape(4, 8)[::-1].ravel())


@pytest.mark.parametrize("line", ["struct A { virtual int f() { return 1; } };", "thread_local int a;"])
def test_words_of_cpp_that_msl_lacks(line):
    with pytest.raises(CompileError, match=r"<msl>:3:\d+: error: MSL has no (virtual functions|thread_local)"):
        clang.Device().kernel(f"{HEADER}{line}\nkernel void f(device int* x) {{ x[0] = 1; }}")


def test_errors_come_without_warnings_about_the_headers():
    source = HEADER + "constexpr int f(int n) { return f(n + 1); }\nconstant int a = f(1);\n"
    with pytest.raises(CompileError, match=r"<msl>:4:14: error: the value is not known to the compiler") as raised:
        anymetal.compile(source + "kernel void g(device int* x) { x[0] = a; }")["g"]
    assert "warning" not in str(raised.value)
    assert "included from" not in str(raised.value)


KERNEL = "kernel void f(device float* x, uint i [[thread_position_in_grid]])"
REFUSED = {
    "a device pointer for a thread parameter": (f"void g(thread float* p) {{}} {KERNEL} {{ g(x); }}", "no matching"),
    "an array for a device parameter": (
        f"void g(device float* p) {{}} {KERNEL} {{ threadgroup float t[2]; g(t); }}",
        "no matching function",
    ),
    "a template of thread pointers": (
        f"template <class T> void g(thread T* p) {{}} {KERNEL} {{ g(x); }}",
        "no matching function",
    ),
    "a vector of another size": (f"{KERNEL} {{ float3 a = float3(float4(1)); }}", "a vector is conv"),
    "a vector of another size in a template": (
        f"template <class T> T g(float4 a) {{ return T(a); }} {KERNEL} {{ g<float3>(float4(1)); }}",
        "a vector is conv",
    ),
    "a header": (
        f"#include <metal_imageblocks>\n{KERNEL} {{}}",
        '"<metal_imageblocks>: image blocks are not supported',
    ),
    "a macro `kernel`": ("#define kernel void\nkernel f(device float* x) {}", "the macro replaces"),
    "an unknown attribute": (
        "kernel void f(device float* x, uint i [[thread_pos]]) {}",
        r"\[\[thread_pos\]\] is not supp",
    ),
    "an image block": ("kernel void f(imageblock<float> b, device float* x) {}", "image blocks are not supported"),
    "a texture to write": ("kernel void f(texture2d<float, access::write> b) {}", "access: textures are not supported"),
    "ray tracing": (
        f"using namespace raytracing;\n{KERNEL} {{}}",
        "raytracing: function tables and ray tracing are not",
    ),
    "a log": (f'{KERNEL} {{ os_log_default.log("a"); }}', "'os_log_default'; it needs version='3.2' or later"),
    "an order of memory": (
        "kernel void f(device atomic_int* a) { atomic_store_explicit(a, 1, memory_order_seq_cst); }",
        "version='3.2'",
    ),
    "a tensor": ("kernel void f(tensor<device float, dextents<int, 2>> a) {}", "'dextents'; it needs version='4.0'"),
    "a concept": (f"template <class T> concept C = true;\n{KERNEL} {{}}", "MSL has no concepts"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_has_the_line_of_the_user(name):
    source, message = REFUSED[name]
    with pytest.raises(CompileError, match=rf"\A<msl>:3:(\d+:)? error: .*{message}") as raised:
        clang.Device().kernel(HEADER + source, version="3.1").function("f")
    assert "shim" not in str(raised.value)


def test_forms_that_resemble_an_error():
    source = """
    typedef device float* pointer;
    template <class T> using numbers = device const T*;
    template <class T> using eight = vec<T, 8>;
    int best(constant float* table, int n) { return int(table[n]); }
    constant float table[2] = {1, 2};
    namespace a::b {
    template <class T> kernel void g(pointer out, numbers<T> x, uint2 i [[thread_position_in_grid]]) {
        auto half_of = 0.5;
        static_assert(is_same_v<decltype(half_of), float>);
        const bfloat narrow = bfloat(half(x[i.x])) + 1.0bf;
        eight<bool> bits;
        for (int k = 0; k < 8; k++) bits[k] = k < 2;
        if (i.x == 0) out[i.x] = half(narrow);
        else out[i.x] = half_of * x[i.x];
        const float2 first(1, 2), second(first);  // each is constructed
        if (second.y == 2 && bits[1] && any(float4(x[i.x]) > float4(1, 2, 0, 4))) out[i.x] += best(table, 1);
    }
    template [[host_name("f")]] kernel void g<float>(pointer, numbers<float>, uint2);
    }"""
    x, out = np.array([0, 2, 4], np.float32), np.zeros(3, np.float32)
    anymetal.compile(HEADER + source)["f"]((3, 1), (3, 1), out, x)
    assert out.tolist() == [1, 3, 4]


def test_components_of_vectors_of_bool():
    """clang's comparisons of vectors have -1 for true, and those of half have vectors of short."""
    source = """
    struct S { bool4 mask; };
    bool4 above(half4 v) { return v > half(2); }
    float first(float4 b) { return b.x; }
    kernel void f(device const float4* p, device float* out) {
        const float4 v = p[0], w = p[1];
        bool4 b = v > 2, rows[2];
        auto c = v < w;
        S s;
        s.mask = v >= w;
        rows[1] = bool4(float4(0.5));
        b.x |= true;
        out[0] = b.x + b[3] + c.y * 10 + float((v > w).w) * 100;
        out[1] = s.mask.w + rows[1].z * 10 + above(half4(v)).w * 100 + first(v) * 1000;
        out[2] = all(rows[1] == bool4(true)) + int2(b.zw).y * 10 + any(c != bool4(1, 1, 0, 0)) * 100;
    }"""
    out = np.zeros(3, np.float32)
    anymetal.compile(HEADER + source)["f"](1, 1, np.array([1, 2, 3, 4, 4, 3, 2, 1], np.float32), out)
    assert out.tolist() == [112, 1111, 11]


@pytest.mark.parametrize(("type", "value"), [("uchar", 256), ("int", 2.5), ("bool", 2), ("uint2", (1, -1))])
def test_a_function_constant_that_its_type_does_not_have(type, value):
    source = f"{HEADER}constant {type} c [[function_constant(0)]];\n{KERNEL} {{ auto y = c; }}"
    with pytest.raises(CompileError, match=rf"c of type {type} is .*; it is an integer from"):
        anymetal.compile(source, constants={"c": value})["f"]


def test_vectors_of_bool_in_buffers(device):
    """A component has a byte there; in registers it has the four of a comparison."""
    source = """
    kernel void f(constant bool2& a [[buffer(0)]], device const bool4* b [[buffer(1)]], device float* out [[buffer(2)]],
                  uint i [[thread_position_in_grid]]) {
        const bool2 both = a;
        const bool4 row = b[i % 2];
        out[i] = a.x + 10 * both.y + 100 * any(b[i % 2]) + 1000 * row.w + select(float2(0), float2(10000), a).y;
    }"""
    rows = np.array([[0, 0, 0, 0], [0, 1, 0, 1]], bool)
    for x, y in ((1, 0), (0, 1)):
        found = run(device, source, "f", 1024, np.array([x, y], bool), rows)
        assert found[:2].tolist() == [x + 10010 * y, x + 10010 * y + 1100]


def test_a_vector_of_bool_has_its_size():
    library = anymetal.compile("kernel void f(constant bool3 &a, device int *y) { y[0] = a.z; }")
    assert [library.kernels["f"]["arguments"][0][key] for key in ("bytes", "alignment", "dtype")] == [4, 4, "bool"]
    with pytest.raises(anymetal.LaunchError, match="needs 4 bytes and has 3"):
        library["f"](1, 1, bytes(3), np.zeros(1, np.int32))


def test_vectors_of_bool_in_memory_have_bytes(device):
    source = """
    struct S { bool4 m; float f; bool3 n[2]; metal::bool2 q; vec<bool, 2> r; };
    static_assert(sizeof(S) == 20, "S");
    struct P { bool4 m = bool4(true, false, true, false); };
    kernel void f(constant S &s, device const bool4 *in, device bool4 *out, device float4 *y, device S *t,
                  device int *z, uint i [[thread_position_in_grid]]) {
        if (i >= 2) return;
        const bool4 a = s.m, b = in[i], w = !s.m;
        y[i] = select(float4(1), float4(2), s.m) + float4(in[i]) * 10 + float4(a) * 100 + float4(s.m == in[i]) * 1000;
        out[i] = in[i] && s.m;
        device bool4 *o = out + i;
        if (i == 0) {
            (*o).x = !(*o).x;
            o->y = s.f > 0;
        } else {
            out[i] = half4(1, 2, 3, 4) > 2.5h;
        }
        if (i != 0) return;
        P p;
        t->m = float4(0, 1, 2, 3) > 1.5f, t->n[1] = bool3(true), t->q.x = true, t->r = !s.q;
        z[0] = any(s.m), z[1] = all(s.m), z[2] = s.n[1].z, z[3] = int(s.q.y), z[4] = metal::any(s.n[0]), z[5] = s.r.x;
        z[6] = p.m.x + 2 * p.m.y + 4 * p.m.z + 8 * p.m.w;
        p.m.y = true;
        union { bool4 b; uint bits; } u;
        u.b = {true, false, false, false};
        u.b[i + 2] = true;
        z[12] = u.bits;
        z[7] = all(p.m), z[8] = w.x + w.y * 2 + w.z * 4 + w.w * 8, z[10] = s.m[2], z[11] = b[1] ? 7 : 5;
        z[9] = any(in[i] ^ s.m) + 2 * any(in[i] | s.m) + 4 * all(s.m != in[i]);
    }"""
    kinds = {"m": ("4?", 0), "f": ("f4", 4), "n": ("(2,4)?", 8), "q": ("2?", 16), "r": ("2?", 18)}
    s = np.zeros(1, np.dtype({**kinds}))
    s["m"], s["f"], s["n"][0, 1, 2], s["q"][0, 1], s["r"][0, 0] = [True, False, True, True], 1, True, True, True
    m, x = s["m"], np.array([[1, 0, 0, 1], [0, 1, 1, 1]], bool)
    out, y, t = device.buffer(8), device.buffer(32), device.buffer(20)
    assert run(device, source, "f", 2, s, x, out, y, t, out=np.int32, length=13).tolist() == [
        1, 0, 1, 1, 0, 1, 5, 0, 2, 3, 1, 5, 0x10001,
    ]  # fmt: skip
    assert contents(out, bool).reshape(2, 4).tolist() == [[False, True, False, True], [False, False, True, True]]
    np.testing.assert_array_equal(contents(y, "f").reshape(2, 4), 1 + m + 10 * x + 100 * m + 1000 * (m == x))
    result = contents(t, s.dtype)[0]
    assert [result[name].tolist() for name in ("m", "q", "r")] == [
        [False, False, True, True],
        [True, False],
        [True, False],
    ]
    assert result["n"][1, :3].all()


def test_copies_from_constant_memory_and_references_to_temporaries(device):
    source = """
    struct S { float a; float b[2]; };
    constant S one = {1, {2, 3}};
    struct Sum { static constexpr constant S init = {4, {5, 6}}; };
    float twice(thread const float &x) { return 2 * x; }
    template <typename T> kernel void f(device T *out, uint i [[thread_position_in_grid]]) {
        if (i >= 4) return;
        threadgroup T shared[4] = {0};
        S s, t = one, all[2];
        s = one;
        all[1] = Sum::init;
        shared[i] = twice(int(i));
        out[i] = s.b[1] + t.a + all[1].b[0] + shared[i];
    }
    template [[host_name("f")]] [[kernel]] decltype(f<float>) f<float>;"""
    assert run(device, source, "f", 4).tolist() == [9, 11, 13, 15]
    with pytest.raises(CompileError, match="an argument is in another address space"):
        device.kernel(HEADER + source.replace("twice(int(i))", "twice(*out)")).function("f")


def test_functions_of_other_stages_are_ignored_and_linked_ones_called(device):
    source = """
    [[mesh]] void m(mesh<V, void, 3, 1, topology::triangle> x) {}
    [[object]] void o(object_data float *x [[payload]], mesh_grid_properties g) {}
    [[intersection(triangle)]] bool hit(float x [[distance]]) { return undefined_function(x); }
    [[visible]] float twice(float x) { return 2 * x; }
    [[stitchable]] float next(float x) { return x + 1; }
    kernel void f(device float *out, uint i [[thread_position_in_grid]]) { if (i < 4) out[i] = twice(next(i)); }"""
    assert run(device, source, "f", 4).tolist() == [2, 4, 6, 8]


def test_the_sign_bit_of_a_bfloat_beside_its_value(device):
    source = """
    kernel void f(device const bfloat *x, device float *out, uint i [[thread_position_in_grid]]) {
        if (i >= 4) return;
        bfloat b = x[i];
        out[i] = float(b > bfloat(0) ? b : -b) + 10 * float(as_type<ushort>(b) >> 15) + 100 * (as_type<short>(b) < 0);
    }"""
    x = (np.array([-2, -1, 1, 2], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    out = device.buffer(16)
    device.kernel(HEADER + source, version="3.1").function("f")(4, x, out)
    assert contents(out, np.float32).tolist() == [112, 111, 1, 2]


def test_packed_vectors_with_vectors_and_names_for_vectors_with_arguments(device):
    source = """
    template <typename T> using vec2 = vec<T, 2>;
    template <typename T> struct Base { float run(float v) const { return static_cast<const thread T *>(this)->go(v); }
    };
    struct Next : Base<Next> { float go(float v) const { return v + 1; } };
    kernel void f(device const packed_float3 *x, device packed_float3 *out, uint i [[thread_position_in_grid]]) {
        if (i >= 8) return;
        packed_float3 p = x[i];
        vec2<int> a(1, 2), b(3);
        float3 q = p * 2.0f + x[i] + float3(1) - p / float3(2);
        out[i] = q * p;
        out[i] += float3(a.x, Next().run(b.y), a.y);
    }"""
    x = np.arange(24, dtype=np.float32)
    expected = ((2 * x + x + 1 - x / 2) * x).reshape(8, 3) + np.array([1, 4, 2])
    np.testing.assert_array_equal(run(device, source, "f", 8, x, length=24), expected.ravel())
