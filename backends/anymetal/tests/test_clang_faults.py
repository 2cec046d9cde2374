"""Programs with a planted mistake: the clang runtime must name each, and the interpreter must live on."""

from __future__ import annotations

import platform
import re

import numpy as np
import pytest

from anymetal import CompileError, LaunchError, clang

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))


@pytest.fixture(scope="module")
def device() -> clang.Device:
    return clang.Device()


def kernel(body, parameters="", threads=64, before=""):
    """A kernel `f` over one float buffer `out`, with the parameters that most tests need."""
    return f"""{HEADER}{before}
[[max_total_threads_per_threadgroup({threads})]]
kernel void f(device float* out [[buffer(0)]], {parameters}uint i [[thread_position_in_grid]],
              uint t [[thread_position_in_threadgroup]]) {{
    {body}
}}"""


def fails(device, source, match, count=64, nbytes=256, *arguments):
    """Assert that a launch fails with this message, and that the next launch of another kernel works."""
    with pytest.raises(LaunchError, match=match):
        device.kernel(source).function("f")(count, device.buffer(nbytes), *arguments)
    out = device.buffer(256)
    device.kernel(kernel("out[i] = i;")).function("f")(64, out)
    np.testing.assert_array_equal(np.frombuffer(out, "f"), np.arange(64))


# ------------------------------------------------------------------------------------------------ single faults

X = "device const float* x [[buffer(1)]], "
TILE = "threadgroup float tile[64];"
PHASES = f"""{TILE} tile[t] = i; threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint s = 32; s > 0; s /= 2) if (t < s) tile[t] += tile[t + s];  // each step needs its barrier
    if (t == 0) out[i / 64] = tile[0];"""
DEEP = "float deep(float x, uint n) { return n == 0xffffffff ? x : 1 + x * deep(x * 1.5, n * 3 + 1); }"
ANY = "threadgroup_barrier(mem_flags::mem_none);"
RETURNS = "if (i >= 40) return;\n    threadgroup_barrier(mem_flags::mem_threadgroup);\n    out[i] = i;"
ORDER, UNREACHED = "depends on the order", "barrier that not all threads reach"

FAULTS = {  # a kernel, the message, and the launch: threads, bytes of `out`, further arguments
    "unguarded index of the rounded-up grid": (
        kernel("out[i] = 1;"),
        r"wrote out of bounds: at byte offset \d+ of buffer\(0\), `device float \*out`, of 40 bytes, "
        r"past its end \(count=10 runs 64 threads, 1 threadgroups of 64\)",
        10, 40,
    ),
    "write past the end behind a barrier": (
        kernel(f"{ANY} out[i] = 1;"), r"wrote out of bounds: at byte offset \d+ of buffer\(0\)", 1000, 4000,
    ),
    "read past the end": (
        kernel("if (i == 0) out[0] = x[64];", X),
        r"read out of bounds: at byte offset 256 of buffer\(1\), `device const float \*x`",
        1, 256, np.zeros(64, np.float32),
    ),
    "wild pointer": (kernel("out[long(i + 1) << 40] = 1;"), "far outside all of its buffers"),
    "array index with its line": (
        kernel("float a[8]; for (uint k = 0; k < 8; ++k) a[k] = k;\n    out[i] = a[t + 1];", threads=32),
        r"used index \d+ of an array of 8 elements, at line 8, column \d+", 8,
    ),
    "threadgroup index": (
        kernel(f"{TILE}\n tile[t + 1] = 1; out[i] = tile[t];"), r"used index 64 of an array of 64 elements, at line 8",
    ),
    "integer division by zero": (
        kernel("out[i] = 7 / n;", "constant int& n [[buffer(1)]], "), "divided an integer by zero",
        64, 256, np.int32(0),
    ),
    "recursion without end": (kernel("out[i] = deep(i, i);", before=DEEP), "overran its stack"),
    "missing barrier between two phases": (kernel(PHASES), ORDER),
    "threads that write the same element": (kernel("out[i / 2] = i;"), r"depends on the order.*check_order=False"),
    "threadgroups that rely on their order": (kernel("out[i] = i < 64 ? 1 : out[i - 64] + 1;"), ORDER, 1024, 4096),
    "scatter without atomics": (kernel("out[i % 4] = out[i % 4] * 3 + i;"), ORDER),
    "return before a barrier": (
        kernel(RETURNS),
        f"{UNREACHED}: in threadgroup 0, 40 of 64 threads wait at line 8, column 5, while 24 have returned",
    ),
    "two barriers are not one": (
        kernel(f"if (t < 10)\n {ANY}\n else\n {ANY}\n out[i] = 1;"), f"{UNREACHED}.*wait at line",
    ),
    "barrier in a loop of different length": (kernel(f"for (uint k = 0; k < t; ++k) {ANY}\nout[i] = 1;"), UNREACHED),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(device, name):
    source, message, *launch = FAULTS[name]
    fails(device, source, message, *launch)


# ------------------------------------------------------------------------------------------------ out of bounds


@pytest.mark.parametrize("nbytes", [4096, 4 * 1024 * 1024, 40, 20, 7])
@pytest.mark.parametrize("by", [0, 1, 100, 100_000])
def test_write_past_the_end(device, nbytes, by):
    source = kernel("if (i == 0) ((device uchar*)out)[at] = 255;", "constant uint& at [[buffer(1)]], ")
    message = rf"wrote out of bounds: at byte offset {nbytes + by} of buffer\(0\).*past its end"
    fails(device, source, message, 1, nbytes, np.uint32(nbytes + by))


@pytest.mark.parametrize("by", [1, 5, 1000, 5000, 1_000_000])
def test_write_before_the_start(device, by):
    source = kernel("if (i == 0) ((device char*)out)[-at] = -1;", "constant int& at [[buffer(1)]], ")
    fails(
        device,
        source,
        rf"wrote out of bounds: at byte offset -{by} of buffer\(0\).*before its start",
        1,
        96,
        np.int32(by),
    )


@pytest.mark.parametrize("by", [1, 3, 1000, 100_000])
def test_read_before_the_start(device, by):
    source = kernel(
        "if (i == 0) out[0] = x[-by] == 1;", "device const float* x [[buffer(1)]], constant int& by [[buffer(2)]], "
    )
    fails(device, source, rf"read out of bounds: at byte offset -{4 * by} of buffer\(1\), .*, before its start", 1, 256,
          np.zeros(96, np.float32), np.int32(by))  # fmt: skip


def test_a_buffer_that_is_bound_twice_is_one_memory(device):
    source = kernel("if (i < 16) out[i] += x[i + 16];", "device const float* x [[buffer(1)]], ")
    out = device.buffer(np.arange(32, dtype=np.float32))
    device.kernel(source).function("f")(64, out, out)
    np.testing.assert_array_equal(np.frombuffer(out, "f"), [*range(16, 48, 2), *range(16, 32)])
    with pytest.raises(LaunchError, match=r"depends on the order .* buffer\(0\)"):
        device.kernel(source.replace("i + 16", "15 - i")).function("f")(64, out, out)


def test_a_buffer_can_be_used_after_a_failure(device):
    source = kernel(
        "if (i == 0) out[at] = 1; if (i == 0 && at < 0) out[long(i + 1) << 40] = 1;", "constant int& at [[buffer(1)]], "
    )
    f, out = device.kernel(source).function("f"), device.buffer(96)
    with pytest.raises(LaunchError, match="far outside"):
        f(1, out, np.int32(-1))
    f(1, out, np.int32(2))
    assert np.frombuffer(out, "f")[2] == 1


def test_a_read_in_the_last_partial_vector_gives_nan(device):
    source = kernel("if (i == 0) out[0] = x[5];", "device const float* x [[buffer(1)]], ")
    out = device.buffer(16)
    device.kernel(source).function("f")(1, out, np.zeros(5, np.float32))
    assert np.isnan(np.frombuffer(out, "f")[0])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors access vectors at any address")
def test_misaligned_vector(device):
    source = kernel("if (i == 0) *(device float4*)(out + 1) = *(device const float4*)(out + 2);")
    fails(device, source, "used a vector at an address that is not a multiple of its alignment")


@pytest.mark.parametrize("is_checked", [False, True])
@pytest.mark.parametrize("barrier", ["", "threadgroup_barrier(mem_flags::mem_none);"])
@pytest.mark.parametrize("length", [70_000, 4_000_000])
def test_an_array_beyond_the_stack_of_a_thread(length, barrier, is_checked):
    """Also one that is larger than the distance to the stacks of other threads."""
    source = kernel(f"float a[{length}]; for (uint k = 0; k < 9; k++) a[k * n] = k; {barrier} out[i] = a[i * n];",
                    "constant uint& n [[buffer(1)]], ")  # fmt: skip
    f = clang.Device(sanitize=is_checked).kernel(source).function("f")
    text = r"kernel `f` overran its stack: its private arrays and calls take more than 256 KiB for a thread"
    with pytest.raises(LaunchError, match=text):
        f.dispatch(2, np.zeros(2, np.float32), np.uint32(7), threadgroup=2)


# ------------------------------------------------------------------------------------------------ order


MISSING_BARRIER = kernel("threadgroup float tile[64]; tile[t] = i;\nout[i] = tile[63 - t];")


def test_missing_barrier(device):
    repaired = MISSING_BARRIER.replace("tile[t] = i;", "tile[t] = i; threadgroup_barrier(mem_flags::mem_threadgroup);")
    out = device.buffer(256)
    device.kernel(repaired).function("f")(64, out)
    np.testing.assert_array_equal(np.frombuffer(out, "f"), np.arange(64)[::-1])
    fails(device, MISSING_BARRIER, r"depends on the order of its threads: the first difference is at byte offset \d+ of"
          r" buffer\(0\).*barrier is missing")  # fmt: skip


WEAK_BARRIERS = {
    "write, then read": "tile[t] = i; BARRIER out[i] = tile[t ^ 32];",
    "read, then write": "tile[t] = i; threadgroup_barrier(mem_flags::mem_threadgroup);"
    "float other = tile[t ^ 32]; BARRIER tile[t] = -1; out[i] = other;",
    "sums of simdgroups": "float sum = simd_sum(float(i)); if (t % 32 == 0) tile[t / 32] = sum; BARRIER"
    "out[i] = simd_sum(t % 32 < 2 ? tile[t % 32] : 0);",
    "device memory": "out[i] = i; BARRIER float other = out[i ^ 32];"
    "threadgroup_barrier(mem_flags::mem_device); out[i] = other;",
}


@pytest.mark.parametrize("name", WEAK_BARRIERS)
def test_a_barrier_of_a_simdgroup_does_not_order_two_simdgroups(device, name):
    body = f"threadgroup float tile[64]; {WEAK_BARRIERS[name]}"
    flags = "(mem_flags::mem_threadgroup | mem_flags::mem_device); "
    device.kernel(kernel(body.replace("BARRIER", f"threadgroup_barrier{flags}"))).function("f")(64, device.buffer(256))
    weaker = kernel(body.replace("BARRIER", f"simdgroup_barrier{flags}"))
    fails(device, weaker, "depends on the order of its threads")


def test_threadgroup_memory_that_nobody_wrote(device):
    source = kernel("""
    threadgroup float tile[64];
    if (t < 63) tile[t] = 1;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = tile[t];""")
    fails(device, source, "depends on the order")
    once = clang.Device(check_order=False)
    out = once.buffer(256)
    once.kernel(source).function("f")(64, out)
    assert np.isnan(np.frombuffer(out, "f")[63])


def test_order_can_be_allowed(device):
    once = clang.Device(check_order=False)
    out = once.buffer(256)
    once.kernel(kernel("out[i / 2] = i;")).function("f")(64, out)
    assert set(np.frombuffer(out, "f")[:32] // 2) == set(range(32))


def test_the_order_is_shuffled_and_repeats():
    source = (
        HEADER
        + """
    [[max_total_threads_per_threadgroup(32)]]
    kernel void f(device atomic_uint* next [[buffer(0)]], device uint* turn [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
        turn[atomic_fetch_add_explicit(next, 1u, memory_order_relaxed)] = i;
    }"""
    )

    def turns(seed):
        device = clang.Device(check_order=False, seed=seed)
        turn = device.buffer(4 * 320)
        device.kernel(source).function("f")(320, 4, turn)
        return np.frombuffer(turn, np.uint32).copy()

    first = turns(1)
    np.testing.assert_array_equal(np.sort(first), np.arange(320))
    np.testing.assert_array_equal(first, turns(1))
    assert (first != turns(2)).any()
    assert (np.diff(first[::32] // 32) != 1).any()  # threadgroups
    assert (np.diff(first[:32].astype(int)) != 1).any()  # threads


# ------------------------------------------------------------------------------------------------ barriers


def test_barriers_of_included_files(device, tmp_path):
    """Barriers on one line of two files are not one, and each is named with its file."""
    for name in ("one", "two"):
        text = f"inline void {name}() {{ threadgroup_barrier(mem_flags::mem_threadgroup); }}\n"
        (tmp_path / f"{name}.h").write_text(text)
    source = kernel("if (t < 10) one(); else two();", before='#include "one.h"\n#include "two.h"')
    with pytest.raises(LaunchError) as error:
        device.kernel(source, include=[tmp_path]).function("f")(64, device.buffer(256))
    places = [f"wait at line 1, column 21 of {tmp_path}/{name}.h" for name in ("one", "two")]
    assert f"10 of 64 threads {places[0]}, while 54 {places[1]}" in str(error.value)


# ------------------------------------------------------------------------------------------------ compile errors


REJECTED = {
    "double": ("double d = out[i]; out[i] = d;", "double"),
    "long double": ("long double d = 1; out[i] = d;", "double"),
    "atomic float": ("device atomic_float* a = (device atomic_float*)out;", "atomic_float"),
    "bfloat": ("bfloat b = 1;", "bfloat"),
    "lambda": ("auto g = [](float x) { return x; }; out[i] = g(1);", "lambda"),
    "goto": ("goto end; end: out[i] = 1;", "goto"),
    "new": ("int* p = new int;", "new"),
    "exception": ("throw 1;", "throw"),
    "function pointer": ("float (*g)(float) = 0;", "pointers to functions"),
    "mutable static": ("static int n = 0; out[i] = n++;", "static|address space"),
    "unknown name": ("out[i] = sine(1.0f);", "use of undeclared identifier 'sine'"),
    "missing semicolon": ("out[i] = 1", "expected ';'"),
    "device to threadgroup": ("threadgroup float* p = out;", "cannot initialize a variable of type 'threadgroup float"),
    "device to thread": ("thread float* p = out;", "cannot initialize a variable"),
    "unqualified pointer": ("float* p = out;", "must have an explicit address space qualifier"),
    "unqualified reference": ("const float &p = out[i];", "must have an explicit address space qualifier"),
    "wrong number of components": ("float2 v = float2(1, 2, 3);", "as many components"),
    "implicit vector conversion": ("int4 v = 1; float4 w = v;", "float4"),
    "ambiguous max": ("out[i] = max(out[i], 1);", "ambiguous"),
    "virtual": ("struct V { virtual void g() {} }; V v;", "virtual"),
    "barrier without flags": ("threadgroup_barrier();", "no matching function"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_rejected_in_a_kernel(device, name):
    body, message = REJECTED[name]
    with pytest.raises(CompileError, match=message) as caught:
        device.kernel(kernel(body))
    assert "<msl>:7:" in str(caught.value)


OTHER_SPACES = {
    "thread reference": ("void f(thread T &a) { a = 1; }", "f(x[i]);"),
    "device reference": ("void f(device const T &a) {}", "f(c);"),
    "constant reference": ("T f(constant T &a) { return a; }", "p = f(x[i]);"),
    "const thread reference": ("T f(const thread T &a) { return a; }", "p = f(c);"),
    "thread pointer": ("void f(thread T *a) { *a = 1; }", "f(x + i);"),
    "device pointer": ("void f(device T *a) { *a = 1; }", "f(&p);"),
    "deduced thread reference": ("template <class U> void f(thread U &a) { a = 1; }", "f(x[i]);"),
    "deduced constant reference": ("template <class U> U f(constant U &a) { return a; }", "p = f(x[i]);"),
    "deduced thread pointer": ("template <class U> void f(thread U *a) { *a = 1; }", "f(x + i);"),
    "named thread reference": ("template <class U> void f(thread U &a) { a = 1; }", "f<T>(x[i]);"),
    "local reference": ("", "thread T &r = x[i]; r = 1;"),
    "local const reference": ("", "device const T &r = c; p = r;"),
    "local pointer": ("", "device const T *r = cs; p = *r;"),
    "assigned pointer": ("", "thread T *r = &p; r = x; *r = 1;"),
    "member": ("struct S { T v; void f(thread T &a) { a = v; } };", "S s; s.v = 1; s.f(x[i]);"),
    "member of a template": (
        "template <class U> struct S { U v; void f(thread U *a) { *a = v; } };", "S<T> s; s.v = 1; s.f(x + i);",
    ),
    "constructor": ("struct S { thread T *v; S(thread T *a) : v(a) {} };", "S s(x); *s.v = 1;"),
    "returned pointer": ("device T *f(thread T *a) { return a; }", "*f(&p) = 1;"),
    "conditional": ("", "device T *r = i ? x : &p; *r = 1;"),
    "thread atomic": ("", "atomic_int a; atomic_fetch_add_explicit(&a, 1, memory_order_relaxed);"),
    "result of frexp": ("", "device int *e = (device int *)x; p = frexp(p, *e);"),
    "thread matrix": ("", "simdgroup_float8x8 m; simdgroup_load(m, (thread float *)&p);"),
}  # fmt: skip
SPACES = """
KERNEL void k(device T *x, constant T &c, constant T *cs, uint i [[thread_position_in_grid]]) {
    threadgroup T shared[4]; threadgroup T last; shared[0] = last = 1; T p = shared[0];
    BODY
    x[i] = p;
}
"""
INSTANTIATION = (
    'template [[host_name("k")]] kernel void k<float>(device float *, constant float &, constant float *, uint);'
)


@pytest.mark.parametrize("name", OTHER_SPACES)
def test_another_address_space(device, name):
    """In a kernel, and in a template of one, which its instantiation checks."""
    before, body = OTHER_SPACES[name]
    plain = f"{HEADER}typedef float T;\n{before}{SPACES}".replace("KERNEL", "kernel").replace("BODY", body)
    template = f"{HEADER}{before.replace('T ', 'float ')}{SPACES}{INSTANTIATION}".replace("BODY", body)
    for source in (plain, template.replace("KERNEL", "template <class T> kernel")):
        with pytest.raises(CompileError, match=r"address space|cannot initialize|incompatible operand types") as caught:
            device.kernel(source).function("k")
        assert re.search(r"<msl>:[3-8]:\d+: error: ", str(caught.value))
        right = source.replace(body, "").replace(
            "return a; }", "return nullptr; }" if "*f(" in before else "return a; }"
        )
        device.kernel(right).function("k")


READ_ONLY = r"<msl>:7:\d+: error: read-only variable is not assignable"
TEMPLATE = "template <typename T> kernel void f(device T* x [[buffer(0)]]) { x[0] = 1; }"
REJECTED_SOURCES = {
    "write to constant": (kernel("n = 1;", "constant uint& n [[buffer(1)]], "), READ_ONLY),
    "write to const device": (kernel("x[i] = 1;", "device const float* x [[buffer(1)]], "), READ_ONLY),
    "argument without address space": (kernel("out[i] = x[i];", "float* x [[buffer(1)]], "), "pointer"),
    "mutable global": (kernel("out[i] = total++;", before="float total = 0;"), r"<msl>:3:\d+: error: .*constant"),
    "global without constant": (kernel("out[i] = K;", before="const float K = 1;"), r"<msl>:3:\d+: error: .*constant"),
    "helper with the wrong address space": (
        kernel("out[i] = get(out, i);", before="float get(threadgroup const float* p, uint i) { return p[i]; }"),
        r"<msl>:7:\d+: error: no matching function for call to 'get'",
    ),
    "helper without address space": (
        kernel("out[i] = get(out, i);", before="float get(const float* p, uint i) { return p[i]; }"),
        r"<msl>:3:\d+: error: a pointer type must have an explicit address space qualifier",
    ),
    "standard library": (
        kernel("out[i] = 1;", before="#include <cmath>"), r"<msl>:3:\d+: fatal error: 'cmath' file not found",
    ),
    "kernel returns a value": (HEADER + "kernel int f(device int* x [[buffer(0)]]) { return x[0]; }", "void"),
    "kernel template": (HEADER + TEMPLATE, "no kernel function.*: a template of one needs an instantiation"),
    "buffer index twice": (kernel("out[i] = x[i];", "device const float* x [[buffer(0)]], "), "twice"),
    "value without attribute": (kernel("out[i] = n;", "uint n, "), r"needs an attribute such as \[\[buffer\(0\)\]\]"),
    "float position": (kernel("out[i] = p;", "float p [[threads_per_grid]], "), "must have one of the types uint"),
    "no kernel": (HEADER + "float f(float x) { return x; }", "no kernel function"),
    "nothing": ("", "no kernel function"),
    "vertex function alone": (
        HEADER + "vertex float4 v(uint i [[vertex_id]]) { return 0; }", r"<msl>:3:15: error: the vertex function `v`",
    ),
    "stitchable function alone": (HEADER + "[[stitchable]] int g(int x) { return x; }", "the stitchable function `g`"),
    "unclosed": (HEADER + "kernel void f(device int* x [[buffer(0)]]) {", "`{` is never closed"),
}  # fmt: skip


@pytest.mark.parametrize("name", REJECTED_SOURCES)
def test_rejected_source(device, name):
    source, message = REJECTED_SOURCES[name]
    with pytest.raises(CompileError, match=message):
        device.kernel(source)


SECRET = "/etc/passwd"
ONCE = "float once() { return 1; }"
UNSAFE_SOURCES = {
    "absolute include": (f'#include "{SECRET}"', "file not found: a source includes the headers of Metal alone"),
    "angled include": (f"#include <{SECRET}>", "file not found"),
    "relative include": ('#include "../../../../../../../../etc/passwd"', "file not found"),
    "include of the working directory": ('#include "pyproject.toml"', "file not found"),
    "include by a macro": (f'#define FILE "{SECRET}"\n#include FILE', "file not found"),
    "continued include": (f'#inc\\\nlude "{SECRET}"', "file not found"),
    "include as a digraph": (f'%:include "{SECRET}"', "file not found"),
    "include_next": ("#include_next <passwd>", "file not found"),
    "import": (f'#import "{SECRET}"', "file not found"),
    "embed": (f'constant uchar bytes[] = {{\n#embed "{SECRET}"\n}};', "file not found"),
    "embed with a limit": (f'constant uchar bytes[] = {{\n#embed "{SECRET}" limit(4)\n}};', "file not found"),
    "a pragma with a file": (f'#pragma GCC dependency "{SECRET}"', "file not found|not supported"),
    "the operator pragma": (f'_Pragma("GCC dependency \\"{SECRET}\\"")', "file not found|not supported"),
    "a pragma with a library": ('#pragma comment(lib, "m")', "not supported"),
    "a pragma with an attribute": (
        "#pragma clang attribute push(__attribute__((constructor)), apply_to=function)\n"
        f"{ONCE}\n#pragma clang attribute pop",
        "not supported",
    ),
    "constructor": (f"__attribute__((constructor)) {ONCE}", "the attribute `constructor` is not supported"),
    "constructor with underscores": (f"__attribute((unused, __constructor__(101))) {ONCE}", "`__constructor__`"),
    "constructor by macros": (
        f"#define CAT(x, y) x##y\n#define RUN CAT(__attri, bute__)((CAT(constr, uctor)))\nRUN {ONCE}", "`constructor`",
    ),
    "constructor of GNU": (f"[[gnu::constructor]] {ONCE}", "the attribute `gnu :: constructor` is not supported"),
    "spaced constructor of GNU": (f"[ /**/ [ unused, __gnu__ :: __constructor__ ]] {ONCE}", "__constructor__"),
    "constructor by using": (f"[[using gnu: constructor]] {ONCE}", "`using gnu :"),
    "constructor in digraphs": (f"<:<:gnu::constructor:>:> {ONCE}", "digraphs such as `<:`"),
    "destructor": (f"__attribute__((destructor)) {ONCE}", "`destructor`"),
    "ifunc": ('__attribute__((ifunc("f"))) void g();', "`ifunc`"),
    "section": ('__attribute__((section(".init_array"))) constant int first = 1;', "`section`"),
    "declspec": (f'__declspec(allocate(".init_array")) {ONCE}', "MSL has no declspec|must be"),
    "assembly": ('void f() { asm("nop"); }', "MSL has no inline assembly"),
    "assembly by macros": ('#define CAT(x, y) x##y\nvoid f() { CAT(as, m)("nop"); }', "MSL has no inline assembly"),
    "a library function": ('extern "C++" int getpid();', "MSL has no linkage specifications"),
    "a directive by a macro": (
        f'#define HASH #\nHASH include "{SECRET}"', "expands to a preprocessor directive",
    ),
    "a value computed at load": (f"{ONCE}\nconstant float first = once();", "not known to the compiler"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSAFE_SOURCES)
def test_sources_that_read_files_or_run_when_they_are_loaded(device, name):
    before, message = UNSAFE_SOURCES[name]
    with pytest.raises(CompileError, match=message) as caught:
        device.kernel(kernel("out[i] = 1;", before=f"\n\n{before}\n"))
    text = str(caught.value)
    assert "root:" not in text, "no text of the file is in the message"
    assert re.search(r"^<msl>:([4-9]|1\d):", text, re.MULTILINE), text


def test_what_is_not_refused_with_them(device):
    before = """
    // #include "/etc/passwd" __has_include("/etc/passwd")
    #if __has_include(<metal_math>) && !__has_include(<metal_nothing>) && !__has_include("metal_tensor.h")
    #define VALUE 3
    #endif
    #if __has_include("/etc/passwd") || __has_include(</etc/passwd>) || __has_include("x/../../etc/passwd")
    #error a file outside of the headers can be seen
    #endif
    #if __has_embed("/etc/passwd") || __has_include("pyproject.toml") || __has_include_next("/etc/passwd")
    #error a file outside of the headers can be seen
    #endif
    struct __attribute__((packed, aligned(4))) Packed { float a; };
    __attribute__((always_inline)) inline float value() { return VALUE; }
    [[clang::noinline]] float other() { return VALUE; }
    """
    body = """
    float sum = 0; int index[2] = {1, 0};
    #pragma unroll
    for (int k = 0; k < 2; ++k) sum += value() + index[index[k]];
    out[i] = sum + other() + (true ? ::exp(0.0f) : 0);
    """
    out = device.buffer(4 * 64)
    device.kernel(kernel(body, before=before)).function("f")(1, out)
    assert np.frombuffer(out, "f")[0] == 11


def test_error_positions_are_those_of_the_source(device):
    source = (
        HEADER + "// a comment\n#define TWICE(x) \\\n  ((x) + (x))\nkernel void f(device int* out [[buffer(0)]]) {\n\n"
    )
    source += "    out[0] =   TWICE(1) + nothing;\n}\n"
    with pytest.raises(CompileError) as caught:
        device.kernel(source)
    assert str(caught.value).startswith("<msl>:8:27: error: use of undeclared identifier 'nothing'")
    assert "out[0] =   TWICE(1) + nothing;" in str(caught.value)


def test_what_is_legal_beside_what_is_not(device):
    """Products, comments and strings of code that look like the mistakes above."""
    before = """
    /* double goto [](float* x) {} */
    struct Pair {
        float a, b;
        float sum() const { return a + b; }
        Pair twice() const { Pair p = {2 * a, 2 * b}; return p; }
    };
    float total(Pair p) { return p.sum(); } // double
    float product(float a, float b) { return a * b; }
    void swap_them(thread float& a, thread float& b) { float c = a; a = b; b = c; }
    constant Pair PAIRS[2] = {{1, 2}, {3, 4}};
    """
    body = """
    float a = 3, b = 4; uint mask = 6, bit = 3;
    const device float* first = out;
    float product_of = a * b; bool both = mask & bit;
    swap_them(a, b);
    Pair p = PAIRS[1]; Pair q = p.twice(); p = q; Pair r = pairs[0]; pairs[1] = r;
    int table[] = {1, 2, 3};
    int3 v = {table[0], table[1], table[table[0]]};
    if (i == 0) out[0] = total(p) + product(a, b) + product_of + both + v.z + first[1] + r.sum();
    """
    out, pairs = device.buffer(8), device.buffer(np.array([5, 6, 7, 8], np.float32))
    source = kernel(body, "device Pair* pairs [[buffer(1)]], ", before=before)
    device.kernel(source).function("f")(1, out, pairs)
    assert np.frombuffer(out, "f")[0] == 14 + 12 + 12 + 1 + 2 + 0 + 11
    np.testing.assert_array_equal(np.frombuffer(pairs, "f"), [5, 6, 5, 6])


# ------------------------------------------------------------------------------------------------ limits


def test_threadgroup_memory_has_a_limit(device):
    with pytest.raises(LaunchError, match="36864 bytes of threadgroup memory; the maximum is 32768"):
        device.kernel(kernel("threadgroup float t1[9216]; t1[t] = 1; out[i] = t1[t];")).function("f")


@pytest.mark.parametrize("threads", [0, 16, 100, 1025, 1056])
def test_threads_per_threadgroup_have_a_limit(device, threads):
    legal = (
        "legal values are the multiples of 32" if 0 < threads < 1024 else "a threadgroup has 1 to 1024 threads: name"
    )
    with pytest.raises(LaunchError, match=rf"max_total_threads_per_threadgroup\({threads}\); {legal}"):
        device.kernel(kernel("out[i] = 1;", threads=threads)).function("f")(32, device.buffer(4096))
