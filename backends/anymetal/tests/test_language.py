"""Small MSL programs on the clang runtime, and on an NVIDIA GPU: each feature of the language against NumPy.

The programs of the folder ``language`` begin with what they should do: lines ``// >>>`` of Python, in which ``run``
launches the kernel. Comparisons of arrays must hold for every element.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

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


OUT = object()
"""The place of the result among the arguments of a launch; without it, it is the last one."""


def run(device, source, name, count, *arguments, out=np.float32, length=None, **options):
    """Launch with one more buffer, ``out`` or one full of NaN; return what the kernel wrote there.

    A tuple is an exact grid, a number is rounded up to whole threadgroups.
    """
    if isinstance(out, np.ndarray):
        dtype, buffer = out.dtype, device.buffer(out)
    else:
        dtype = np.dtype(out)
        buffer = device.buffer((count if length is None else length) * dtype.itemsize)
        buffer[:] = 0xFF
    function = device.kernel(HEADER + source, **options).function(name)
    given = arguments if any(one is OUT for one in arguments) else (*arguments, OUT)
    launch = function.dispatch if isinstance(count, tuple) else function
    handle = launch(count, *(buffer if one is OUT else one for one in given))
    del handle
    return contents(buffer, dtype)


class Program:
    """A program of the folder ``language``: the names that its lines of Python use."""

    def __init__(self, device, path):
        self.device, self.text = device, path.read_text().replace(HEADER, "")
        self.name = next(iter(re.findall(r"kernel void (\w+)\(", self.text)), None)
        self.names = {"np": np, "OUT": OUT, "device": device, "contents": contents}
        self.names |= {"f4": np.float32, "i4": np.int32, "u4": np.uint32, "u2": np.uint16}
        self.names |= {
            "run": self.run,
            "check_accesses": self.check_accesses,
            "refused": self.refused,
            "changed": self.changed,
        }
        self.names |= {"integers": lambda seed, *rest: np.random.default_rng(seed).integers(*rest)}
        self.names |= {"processor_only": lambda: processor_only(device)}

    def run(self, count, *arguments, kernel=None, length=None, **options):
        if isinstance(count, tuple) and length is None:
            length = int(np.prod(count))
        return run(self.device, self.text, kernel or self.name, count, *arguments, length=length, **options)

    def check_accesses(self):
        self.device = clang.Device(sanitize=True)

    def refused(self, old, new, words, kernel=None):
        assert old in self.text
        with pytest.raises(CompileError, match=words):
            self.device.kernel(HEADER + self.text.replace(old, new), version="3.2").function(kernel or self.name)

    def changed(self, *replacement):
        self.text = self.text.replace(*replacement)

    def check(self, line):
        (statement,) = ast.parse(line).body
        if not isinstance(statement, ast.Expr):
            exec(line, self.names)
        elif isinstance(statement.value, ast.Compare) and isinstance(statement.value.ops[0], ast.Eq):
            sides = statement.value.left, *statement.value.comparators
            np.testing.assert_array_equal(*(eval(ast.unparse(side), self.names) for side in sides), err_msg=line)
        else:
            assert eval(line, self.names) in (True, None), line


PROGRAMS = sorted(Path(__file__).with_name("language").glob("*.metal"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_program(device, path):
    program = Program(device, path)
    lines = re.findall(r"^// >>> (.*)", path.read_text(), re.MULTILINE)
    assert lines
    for line in lines:
        program.check(line)


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


@pytest.mark.slow
def test_indices_beyond_two_to_the_31(device):
    source = """
    kernel void f(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
        if (i >= 2147483648u) out[i - 2147483648u] = i;
    }"""
    fast = clang.Device(check_order=False) if isinstance(device, clang.Device) else device
    result = run(fast, source, "f", 2**31 + 1024, out=np.uint32, length=1024)
    np.testing.assert_array_equal(result, 2**31 + np.arange(1024))


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
    "a macro `kernel`": ("#define kernel void\nkernel f(device float* x) {}", "the macro replaces"),
    "an unknown attribute": (
        "kernel void f(device float* x, uint i [[thread_pos]]) {}",
        r"\[\[thread_pos\]\] is not supp",
    ),
    "an image block": ("kernel void f(imageblock<float> b, device float* x) {}", "image blocks are not supported"),
    "ray tracing": (
        f"using namespace raytracing; {KERNEL} {{ raytracing::ray r; }}",
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


@pytest.mark.parametrize(("type", "value"), [("uchar", 256), ("int", 2.5), ("bool", 2), ("uint2", (1, -1))])
def test_a_function_constant_that_its_type_does_not_have(type, value):
    source = f"{HEADER}constant {type} c [[function_constant(0)]];\n{KERNEL} {{ auto y = c; }}"
    with pytest.raises(CompileError, match=rf"c of type {type} is .*; it is an integer from"):
        anymetal.compile(source, constants={"c": value})["f"]


def test_a_vector_of_bool_has_its_size():
    library = anymetal.compile("kernel void f(constant bool3 &a, device int *y) { y[0] = a.z; }")
    assert [library.kernels["f"]["arguments"][0][key] for key in ("bytes", "alignment", "dtype")] == [4, 4, "bool"]
    with pytest.raises(anymetal.LaunchError, match="needs 4 bytes and has 3"):
        library["f"](1, 1, bytes(3), np.zeros(1, np.int32))
