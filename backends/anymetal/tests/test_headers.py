"""The headers of the Metal library: small functions, compiled as the front end writes them, against exact values."""

from __future__ import annotations

import ctypes
import itertools
import json
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from anymetal.frontend import toolchain
from anymetal.frontend.options import Options
from anymetal.frontend.rewrites import Source, strictly_rewritten
from anymetal.frontend.syntax import Syntax

CLANG = toolchain.find()
pytestmark = pytest.mark.skipif(CLANG is None or sys.platform != "linux", reason="needs clang on Linux")

MACHINE = platform.machine()
CPU = ("-target-cpu", "x86-64-v3") if MACHINE == "x86_64" else ()
RUNNING = (
    *("-cc1", "-x", "c++", "-std=c++17", "-fsycl-is-device", "-fdeclspec", "-w", "-Wno-reserved-user-defined-literal"),
    *("-Wno-c++11-narrowing", "-nostdsysteminc", "-nobuiltininc", "-aux-triple", f"{MACHINE}-unknown-linux-gnu"),
    *("-include", str(toolchain.LIBRARY_HEADER), "-D__METAL__=1"),
)
HOST = (
    *("-triple", f"{MACHINE}-unknown-linux-gnu", *CPU, "-O1", "-mrelocation-model", "pic", "-pic-level", "2"),
    *("-ffloat16-excess-precision=none", "-fbfloat16-excess-precision=none", "-fsanitize=array-bounds"),
)
FAST = ("-menable-no-infs", "-menable-no-nans", "-fapprox-func", "-mreassociate", "-freciprocal-math")
SLOT = 64

# The launcher's part, for one simdgroup. A function of a simdgroup stops its lane until all have brought their values,
# then every lane starts again and goes on with what is known so far.
LAUNCHER = """
typedef unsigned int uint;
struct exchange { uint active; unsigned char value[32][64] __attribute__((aligned(64))); } known[64];
uint lane, asked, rounds, calls[64][3];
long found[4];
void *place[5];
uint anymetal_thread_index(void) { return lane; }
struct site { const char *file; uint line, column; };
struct exchange *anymetal_exchange_values(const void *value, uint bytes, uint flags, struct site here) {
    uint call = asked++;
    if (call < rounds) return &known[call];
    known[call].active |= 1u << lane;
    __builtin_memcpy(known[call].value[lane], value, bytes);
    calls[call][0] = flags, calls[call][1] = here.line, calls[call][2] = here.column;
    __builtin_longjmp(place, 1);
}
void anymetal_barrier(uint flags, struct site here) { found[3] = flags; }
void anymetal_out_of_bounds(long index, unsigned long length, struct site here) {
    found[0] = index, found[1] = length, found[2] = here.line, found[3] = here.column;
    __builtin_longjmp(place, 1);
}
int simdgroup(void (*body)(void *, uint), char *out, uint lanes) {
    __builtin_memset(known, 255, sizeof known);
    for (uint i = 0; i < 64; i++) known[i].active = 0;
    for (rounds = 0; rounds < 64; rounds++) {
        volatile uint waiting = 0, i;
        for (i = 0; i < lanes; i++) {
            lane = i, asked = 0;
            if (__builtin_setjmp(place) == 0) body(out + 64 * i, i);
            else waiting++;
        }
        if (!waiting) break;
    }
    return rounds;
}
int thread(void (*entry)(const void *, uint), const void *group, uint t) {
    if (__builtin_setjmp(place)) return 1;
    entry(group, t);
    return 0;
}
"""
OWN = [f"-Danymetal_{name}=test_{name}" for name in ("thread_index", "exchange_values", "barrier", "out_of_bounds")]
"""Names that the launcher of the runtime, in the same process, does not have."""
PRELUDE = """
using namespace metal;
template <class T> T v(T x) { volatile T y = x; return y; } // not known to the compiler
template <class T> void put(void *out, T value) { __builtin_memcpy(out, &value, sizeof(T)); }
template <class T> void put(void *out, vec<T, 3> v) { __builtin_memcpy(out, &v, 3 * sizeof(T)); }
template <class T, int C, int R> void put(void *out, matrix<T, C, R> m) {
    for (int i = 0; i < C; i++) put((T *)out + R * i, m[i]);
}
template <class T, class F> void triples(const T *in, uint n, T *out, F f) {
    for (uint i = 0; i < n * n * n; i++) out[i] = f(in[i / n / n], in[i / n % n], in[i % n]);
}
namespace source { // functions that a source defines beside those of the library
template <class T> T sign(T x) { return x + T(40); }
}
template <class V> V take(V v) { return v; }
template <class V, class... A> V make(A... a) { return anymetal::construct<V>(a...); }
template <class A, class F> auto on(F f) { A a{{7}}; return f((device A *)&a); }
template <class A, class R> R on(R (*f)(volatile threadgroup A *)) { A a{{7}}; return f((threadgroup A *)&a); }
#define RELAXED memory_order_relaxed
#define LOAD(p) atomic_load_explicit(p, RELAXED)
#define STORE(p, x) atomic_store_explicit(p, x, memory_order_release)
#define SWAP(p, x) atomic_exchange_explicit(p, x, RELAXED)
#define TRY(...) atomic_compare_exchange_weak_explicit(__VA_ARGS__, RELAXED, RELAXED)
#define SURELY(p, e, v) [&](int want) { bool a; do a = TRY(p, e, v); while (!a && *e == want); return a; }(*e)
#define FETCH(NAME, ...) atomic_fetch_##NAME##_explicit(__VA_ARGS__, memory_order_acq_rel)
#define ARRAYS(IN, OUT) const IN *in, uint n, OUT *out
#define LANE void *out, uint lane
#define FUNCTION extern "C" [[clang::sycl_external]]
"""
Rows = list[tuple[str, str, Any]]
INTEGERS = {
    "char": "i1",
    "uchar": "u1",
    "short": "i2",
    "ushort": "u2",
    "int": "i4",
    "uint": "u4",
    "long": "i8",
    "ulong": "u8",
}
SIZES = {**{name: int(code[1]) for name, code in INTEGERS.items()}, "half": 2, "bfloat": 2, "float": 4}


def of_layout() -> Rows:
    rows: Rows = []
    for (name, size), n in itertools.product(SIZES.items(), (2, 3, 4)):
        whole = size * (4 if n == 3 else n)
        rows += [(f"uint2{{sizeof({name}{n}), alignof({name}{n})}}", "u4", [whole, whole])]
        rows += [(f"uint2{{sizeof(packed_{name}{n}), alignof(packed_{name}{n})}}", "u4", [size * n, size])]
    for (name, size), c, r in itertools.product((("half", 2), ("float", 4)), (2, 3, 4), (2, 3, 4)):
        column = size * (4 if r == 3 else r)
        rows += [(f"uint2{{sizeof({name}{c}x{r}), alignof({name}{c}x{r})}}", "u4", [c * column, column])]
    return rows


def of_limits() -> Rows:
    rows: Rows = []
    for name, code in INTEGERS.items():
        known = np.iinfo(code)
        for what, value in (("min", known.min), ("lowest", known.min), ("max", known.max), ("epsilon", 0)):
            rows += [(f"numeric_limits<{name}>::{what}()", code, value)]
        digits = 8 * int(code[1]) - (code[0] == "i")
        rows += [(f"int(numeric_limits<{name}>::digits)", "i4", digits)]
        rows += [(f"int(numeric_limits<{name}>::digits10)", "i4", len(str(2**digits - 1)) - 1)]
        rows += [(f"bool(numeric_limits<const {name}>::is_signed)", "?", code[0] == "i")]
    for name, code in (("half", "f2"), ("float", "f4")):
        number = np.finfo(code)
        for what in ("min", "max", "lowest", "epsilon", "denorm_min", "infinity", "quiet_NaN", "signaling_NaN"):
            special = {"lowest": number.min, "min": number.tiny, "epsilon": number.eps, "infinity": np.inf}
            special |= {"denorm_min": number.smallest_subnormal, "max": number.max}
            rows += [(f"numeric_limits<{name}>::{what}()", code, special.get(what, np.nan))]
        numbers = number.nmant + 1, number.precision, number.maxexp, number.minexp + 1
        for what, count in zip(("digits", "digits10", "max_exponent", "min_exponent"), numbers, strict=True):
            rows += [(f"int(numeric_limits<{name}>::{what})", "i4", count)]
    for what, bits in (("min", 0x80), ("max", 0x7F7F), ("lowest", 0xFF7F), ("epsilon", 0x3C00), ("denorm_min", 1)):
        rows += [(f"numeric_limits<bfloat>::{what}()", "u2", bits)]
    return [*rows, ("numeric_limits<bfloat>::infinity()", "u2", 0x7F80), ("INT_MIN", "i4", -(2**31))]


EXPRESSIONS = """
vectors:
    make<float4>(1.0f, make<float2>(2.0f, 3.0f), v(4.0f)) -> f4 [1, 2, 3, 4]
    make<float4>(make<float3>(v(1.0f)), 2) -> f4 [1, 1, 1, 2]
    make<float4>(v(7)) -> f4 [7, 7, 7, 7]
    make<int4>(make<float4>(1.9f, -1.9f, 2.5f, v(-0.5f))) -> i4 [1, -1, 2, 0]
    make<uchar4>(int4{v(1), 257, -1, 128}) -> u1 [1, 1, 255, 128]
    make<half2>(make<bfloat2>(float2{v(1.5f), -2})) -> f2 [1.5, -2]
    make<bfloat2>(make<half2>(float2{v(1.5f), -2})) -> u2 [16320, 49152]
    make<vec<float, 3>>(packed_float3(1, 2, v(3.0f))) -> f4 [1, 2, 3]
    make<packed_float3>(v(2.0f), float2{3, 4}) -> f4 [2, 3, 4]
    packed_float3(v(2.0f)) * 2 + float3{1, 2, 3} -> f4 [5, 6, 7]
    packed_half3(half(v(2.0f)), 3, 4)[v(1)] -> f2 3
    [] { packed_short3 p(1, 2, v(short(3))); p += short3{1, 1, 1}; p[0] = 9; return p; }() -> i2 [9, 3, 4]
    float4{v(1.0f), 2, 3, 4}.wzyx.yz -> f4 [3, 2]
    take<float4>(anymetal::braces(1, v(2.0f), make<float2>(3))) -> f4 [1, 2, 3, 3]
    [] { struct pair { int a; float b; }; return take<pair>(anymetal::braces(v(1), 2.5f)).b; }() -> f4 2.5
    anymetal::cast<int>(v(2.7f)) -> i4 2
    anymetal::cast<bfloat>(half(v(2.5f))) -> u2 16416
    anymetal::castto<uint>() ->* anymetal::castto<int>() ->* v(-1.5f) -> u4 4294967295
    anymetal::castto<float4>() ->* v(3) -> f4 [3, 3, 3, 3]
    anymetal::castto<uchar>() ->* v(300) + 1 -> i4 45
    [] { float4 x = v(2.0f); return anymetal::cast<int>(x.y) + (anymetal::castto<int>() ->* x[v(2)]); }() -> i4 4
    [] { float x = v(2.0f); anymetal::cast<thread float &>(x) = 5; return x; }() -> f4 5
    [] { enum class e : uint { a = 7 }; return anymetal::cast<uint>(e::a) + uint(anymetal::cast<e>(v(2))); }() -> u4 9
    as_type<uint>(v(1.0f)) -> u4 1065353216
    as_type<half2>(v(0xc0003c00u)) -> f2 [1, -2]
    as_type<ushort>(bfloat(v(1.0f))) -> u2 16256
    as_type<uchar4>(v(0x04030201)) -> u1 [1, 2, 3, 4]
    as_type<ulong>(uint2{v(1u), 2u}) -> u8 8589934593
    as_type<int3>(float3{v(1.0f), 2, -0.0f})[v(2)] -> i4 -2147483648
    0.1h + 1.0_H -> f2 1.0996094
    0.1_bf -> u2 15821
    [] { array<float, 3> a{{1, 2, v(3.0f)}}; a[1] += 5; return a[1] + float(a.size()); }() -> f4 10
    [] { array<float, 3> a{{1, 2, v(3.0f)}}; float s = a.front(); for (auto x : a) s += x; return s; }() -> f4 7
    [] { array<int, 3> a{{1, 2, v(3)}}; for (thread int &b : a) b *= 2; return a.end() - a.begin() + a[2]; }() -> i8 9
    [] { array<float, 3> a{{1, 2, v(3.0f)}}; a.data()[2] += 4; return a.data()[2]; }() -> f4 7
matrices:
    float2x3(1, 2, 3, 4, 5, v(6.0f)) -> f4 [1, 2, 3, 4, 5, 6]
    float2x2(make<float2>(1, 2), make<float2>(v(3.0f))) -> f4 [1, 2, 3, 3]
    float3x2(v(2.0f)) -> f4 [2, 0, 0, 2, 0, 0]
    half2x2(float2x2(1, 2, 3, v(4.0f))) -> f2 [1, 2, 3, 4]
    float2x2(1, 2, 3, 4) * float2x2(5, 6, 7, v(8.0f)) -> f4 [23, 34, 31, 46]
    float3x2(1, 2, 3, 4, 5, 6) * float3{1, 10, v(100.0f)} -> f4 [531, 642]
    float2{1, v(10.0f)} * float3x2(1, 2, 3, 4, 5, 6) -> f4 [21, 43, 65]
    float3x2(1, 2, 3, 4, 5, 6) * float2x3(1, 2, 3, 4, 5, v(6.0f)) -> f4 [22, 28, 49, 64]
    transpose(float3x2(1, 2, 3, 4, 5, v(6.0f))) -> f4 [1, 3, 5, 2, 4, 6]
    determinant(float2x2(1, 2, 3, v(4.0f))) -> f4 -2
    determinant(float3x3(2, 0, 1, 1, 3, 2, 1, 1, v(4.0f))) -> f4 18
    determinant(float4x4(1, 2, 0, 1, 0, 1, 3, 2, 2, 0, 1, 1, 1, 1, 0, v(3.0f))) -> f4 31
    -(2.0f * float2x2(1, 2, 3, 4) - float2x2(v(1.0f))) / 2.0f -> f4 [-0.5, -2, -3, -3.5]
    [] { float2x2 m(v(1.0f)); m *= m + m; m[1][0] = 5; return m[1] + m.columns[0]; }() -> f4 [7, 2]
    float2x2(v(1.0f)) == float2x2(1, 0, 0, 1) -> ? true
    [] { matrix<bfloat, 4, 4> m(bfloat(v(2.0f))); return float((m * m)[3][3]); }() -> f4 4
common:
    clamp(v(5.0f), 0.0f, 1.0f) -> f4 1
    clamp(make<float4>(-1, 0.5f, 2, v(NAN)), 0.0f, 1.0f) -> f4 [0, 0.5, 1, 0]
    max(v(2.0f), NAN) -> f4 2
    fmin(half(v(2.0f)), half(NAN)) -> f2 2
    max3(v(1), 3, 2) * 100 + min3(v(1), 3, 2) * 10 + median3(v(1), 3, 2) -> i4 312
    median3(float3{1, 5, v(9.0f)}, 6, 7) -> f4 [6, 6, 7]
    mix(float2{0, v(4.0f)}, float2{2, 8}, 0.25f) -> f4 [0.5, 5]
    sign(float4{v(-2.0f), 0, 5, NAN}) -> f4 [-1, 0, 1, 0]
    as_type<uint>(sign(v(-0.0f))) -> u4 2147483648
    step(v(1.0f), float2{0.5f, 1}) -> f4 [0, 1]
    smoothstep(v(0.0f), 2.0f, float2{0.5f, 3}) -> f4 [0.15625, 1]
    saturate(float3{v(-1.0f), NAN, 2}) -> f4 [0, 0, 1]
    fract(float2{v(-1.25f), -0x1p-30f}) -> f4 [0.75, 0.99999994]
    fract(half(v(-0x1p-20f))) -> f2 0.9995
    float4{sinpi(v(1.0f)), sinpi(v(1e7f + 1)), cospi(v(0.5f)), cospi(v(3.0f))} -> f4 [0, 0, 0, -1]
    [] { float w; float f = modf(v(-2.75f), w); return float2{f, w}; }() -> f4 [-0.75, -2]
    [] { float2 w, f = modf(float2{v(INFINITY), -2}, w); return float3{f.x, w.x, w.y}; }() -> f4 [0, Infinity, -2]
    [] { int e; float f = frexp(v(0x1.8p-140f), e); return float2{f, float(e)}; }() -> f4 [0.75, -139]
    [] { int2 e; half2 f = frexp(half2{half(v(6.0f)), 0}, e); return float3{f.x, f.y, e.x}; }() -> f4 [0.75, 0, 3]
    ldexp(float2{v(0.75f), 1}, int2{3, -2}) -> f4 [6, 0.25]
    int4{ilogb(v(3e-41f)), ilogb(6.0h), ilogb(v(0.0f)), ilogb(1 / v(0.0f))} -> i4 [-135, 2, -2147483648, 2147483647]
    ilogb(float2{v(0.75f), -9}) -> i4 [-1, 3]
    [] { float c, s = sincos(v(0.0f), c); return float2{s, c}; }() -> f4 [0, 1]
    as_type<int4>(nextafter(float4{v(0.0f), 1, 2, 3}, 2.0f)) -> i4 [1, 1065353217, 1073741824, 1077936127]
    as_type<uint2>(nextafter(float2{v(-1.0f), -0.0f}, -2.0f)) -> u4 [3212836865, 2147483649]
    as_type<ushort>(nextafter(half(v(1.0f)), half(2))) -> u2 15361
    as_type<ushort>(fma(half(v(0x1.008p0f)), half(0x1.4p0f), half(0x1p-24f))) -> u2 15619
    as_type<ushort>(fma(half(v(0x1.8p0f)), half(0x1.554p0f), half(-0x1p-24f))) -> u2 16383
    fdim(float2{v(3.0f), 1}, 2.0f) -> f4 [1, 0]
    [] { using namespace source; return sign(make<float2>(v(2.0f))); }() -> f4 [42, 42]
    exp(bfloat(v(1.0f))) -> u2 16430
    max(make<bfloat2>(float2{v(1.0f), 5}), bfloat(2)) -> u2 [16384, 16544]
    precise::sqrt(v(4.0f)) + fast::max(v(1.0f), 0.5f) -> f4 3
    __metal_exp2(v(3.0f), __METAL_PRECISE_MATH__) + __metal_fmin(v(1.0f), 2.0f, 1) + __metal_isnan(v(0.0f)) -> f4 9
relational:
    isnan(float3{v(0.0f), NAN, INFINITY}) -> i1 [0, 1, 0]
    int4{isnan(v(NAN)), isinf(half(-v(INFINITY))), isfinite(v(1.0f)), isnormal(half(v(0x1p-15f)))} -> i4 [1, 1, 1, 0]
    isnan(bfloat(v(NAN))) && signbit(v(-0.0f)) && isunordered(v(1.0f), NAN) && !isordered(v(1.0f), NAN) -> ? true
    all(float2{v(1.0f), 2} == float2{1, 2}) && !any(int3{v(0), 0, 0}) && any(v(true)) -> ? true
    select(float2{v(1.0f), 2}, float2{3, 4}, float2{0, 1} > 0.5f) -> f4 [1, 4]
    select(v(1), 2, true) * 10 + select(v(1), 2, false) -> i4 21
    select(make<uchar2>(v(1)), make<uchar2>(2), v(true)) -> u1 [2, 2]
    dot(float3{1, 2, v(3.0f)}, packed_float3(4, 5, 6)) -> f4 32
    cross(float3{1, 0, v(0.0f)}, float3{0, 1, 0}) -> f4 [0, 0, 1]
    float2{length(float2{v(3.0f), 4}), distance(float2{v(1.0f), 2}, 1.0f)} -> f4 [5, 1]
    length_squared(half2{half(v(3.0f)), 4}) -> f2 25
    normalize(float2{v(0.0f), 4}) -> f4 [0, 1]
    reflect(float2{1, v(-1.0f)}, float2{0, 1}) -> f4 [1, 1]
    faceforward(float2{0, v(1.0f)}, float2{0, 1}, float2{0, 1}) -> f4 [0, -1]
    refract(float2{0, v(-1.0f)}, float2{0, 1}, 0.5f) -> f4 [0, -1]
packing:
    unpack_unorm4x8_to_float(v(0xff800033u)) -> f4 [0.2, 0, 0.5019608, 1]
    unpack_snorm2x16_to_half(v(0x80007fffu)) -> f2 [1, -1]
    pack_float_to_unorm4x8(float4{v(0.2f), 2, -1, 0.5f}) -> u4 2147548979
    pack_half_to_snorm2x16(half2{half(v(-1.0f)), 1}) -> u4 2147450881
    unpack_unorm565_to_float(ushort(v(0x9a5f))) -> f4 [1, 0.2857143, 0.61290324]
    unpack_unorm565_to_half(ushort(v(0x041f))) -> f2 [1, 0.50793654, 0]
    pack_float_to_unorm565(float3{v(1.0f), 0.25f, 0.1f}) -> u2 6687
    pack_half_to_unorm565(half3{half(v(1.0f)), 0.25h, 0.1h}) -> u2 6687
    pack_float_to_unorm565(float3{v(0.5f) / 31, 2.5f / 63, 4.5f / 31}) -> u2 8256
    unpack_unorm10a2_to_float(v(0xc0500401u)) -> f4 [0.0009775171, 0.0009775171, 0.0048875855, 1]
    pack_float_to_unorm10a2(float4{v(0.5f), 2, 0.001f, 0.4f}) -> u4 1075838464
    pack_half_to_unorm10a2(unpack_unorm10a2_to_half(v(0xc0500401u))) -> u4 3226469377
    rint(unpack_unorm4x8_srgb_to_float(v(0x800a80ffu)) * 1e4f) -> f4 [10000, 2159, 30, 5020]
    pack_float_to_srgb_unorm4x8(float4{v(0.002f), 0.25f, 1, 0.5f}) -> u4 2164230407
    pack_half_to_srgb_unorm4x8(unpack_unorm4x8_srgb_to_half(v(0x80ff80ffu))) -> u4 2164228351
    pack_float_to_snorm4x8(float4{as_type<float>(v(0x7fc00000)), -2, 2, v(-0.5f)}) -> u4 3229581568
atomics:
    on<atomic_int>([](auto p) { return FETCH(add, p, 5) * 100 + LOAD(p); }) -> i4 712
    on<atomic_uint>([](auto p) { return FETCH(max, p, 9u) + LOAD(p) * 10; }) -> u4 97
    on<atomic_uint>([](auto p) { return FETCH(min, p, 3) + LOAD(p) * 10; }) -> u4 37
    on<atomic<int>>([](auto p) { return FETCH(xor, p, 2) + LOAD(p) * 10; }) -> i4 57
    on<atomic<int>>([](auto p) { return FETCH(or, p, 8) + LOAD(p) * 10; }) -> i4 157
    on<atomic<int>>([](auto p) { return FETCH(and, p, 12) + LOAD(p) * 10; }) -> i4 47
    on<atomic_int>(+[](volatile threadgroup atomic_int *p) { STORE(p, 4); return SWAP(p, 6) + LOAD(p) * 10; }) -> i4 64
    on<atomic_int>([](auto p) { int e = 7, a = SURELY(p, &e, 8); return int3{a, TRY(p, &e, 9), e}; }) -> i4 [1, 0, 8]
    on<atomic_float>([](auto p) { return FETCH(add, p, 0.5f) * 10 + SWAP(p, 1) + FETCH(sub, p, 3); }) -> f4 78.5
    on<atomic_ulong>([](auto p) { atomic_max_explicit(p, 1ul << 40, RELAXED); return LOAD(p); }) -> u8 1099511627776
    on<atomic_bool>([](auto p) { bool a = SWAP(p, false); return a * 10 + LOAD(p); }) -> i4 10
"""
TRAITS = """
is_same_v<vec<float, 3>, float3>; is_same_v<decay_t<const device float &>, float>; is_floating_point_v<const bfloat>
is_same_v<remove_addrspace_t<const threadgroup int>, const int>; is_floating_point_v<half>; is_integral<bool>::value
is_signed_v<float>; is_unsigned_v<ulong>; is_same_v<make_unsigned_t<int>, uint>; is_convertible_v<int, float>
is_vector_v<half4>; is_same_v<conditional_t<(sizeof(int) > 2), uint, void>, uint>; is_pointer_v<device float *>
is_same_v<make_scalar_t<packed_half3>, half>; vec_elements<float4>::value == 4; is_same_v<int8_t, char>
is_same_v<enable_if_t<true, char>, char>; _disjunction<is_same<int, uint>, true_type>::value; is_const_v<const int>
is_arithmetic_v<uchar>
conjunction_v<true_type, is_enum<mem_flags>>; is_same_v<decltype(declval<float>() + 1), float>
is_same_v<remove_reference_t<thread float &>, float>; is_same_v<make_index_sequence<2>, index_sequence<0, 1>>
!is_same_v<device float *, threadgroup float *>; !is_floating_point_v<int>; !is_integral_v<float>; !is_signed_v<uint>
!is_convertible_v<float3, float>; !is_vector_v<float>; !is_pointer_v<float>; !is_scalar_v<float2>
!negation_v<true_type>
!vec_elements<float>::value; !is_same_v<short, ushort>; !is_convertible_v<device float *, threadgroup float *>
"""
TABLES: dict[str, Rows] = {"layout": of_layout(), "limits": of_limits()}
TABLES["traits"] = [(f"bool({text})", "?", True) for text in re.split(r";|\n", TRAITS.strip())]
for line in EXPRESSIONS.strip().splitlines():
    expression, _, answer = line.strip().rpartition(" -> ")
    if answer.endswith(":"):
        rows = TABLES[answer[:-1]] = []
    else:
        code, _, text = answer.partition(" ")
        rows.append((expression, code, json.loads(text)))

lanes = np.arange(32)
quads, rank = lanes & ~3, lanes & 3
x = lanes * 7 % 32
SIMD: dict[str, Any] = {
    "simd_sum(x)": x.sum(),
    "simd_max(x) * 100 + simd_min(x + 1)": 3101,
    "quad_sum(x)": np.add.reduceat(x, lanes[::4]).repeat(4),
    "quad_product(ulong(x + 1))": np.multiply.reduceat(x + 1, lanes[::4]).repeat(4),
    "simd_xor(x) * 10000 + simd_or(x) * 100 + simd_and(x | 64)": 0 + 3100 + 64,
    "simd_prefix_exclusive_sum(x)": np.cumsum(x) - x,
    "simd_prefix_inclusive_sum(float(x))": np.cumsum(x),
    "simd_prefix_inclusive_product(lane < 5 ? 2 : 1)": 2 ** np.minimum(lanes + 1, 5),
    "quad_prefix_exclusive_sum(x)": np.concatenate([np.cumsum(part) - part for part in x.reshape(8, 4)]),
    "simd_shuffle(x, 31 - lane)": x[::-1],
    "simd_shuffle_xor(x, 5)": x[lanes ^ 5],
    "simd_shuffle_up(x, 3)": x[np.where(lanes >= 3, lanes - 3, lanes)],
    "simd_shuffle_down(x, 3)": x[np.where(lanes < 29, lanes + 3, lanes)],
    "simd_shuffle_rotate_up(x, 35)": np.roll(x, 3),
    "simd_shuffle_rotate_down(x, 3)": np.roll(x, -3),
    "simd_shuffle_and_fill_down(x, x + 100, 3)": np.concatenate([x[3:], x[:3] + 100]),
    "simd_shuffle_and_fill_up(x, x + 100, 3)": np.concatenate([x[-3:] + 100, x[:-3]]),
    "simd_shuffle_and_fill_down(x, x + 100, 3, 8)": np.where(
        lanes % 8 < 5, x[(lanes + 3) % 32], x[lanes // 8 * 8 + (lanes + 3) % 8] + 100
    ),
    "simd_shuffle_and_fill_up(x, x + 100, 3, 8)": np.where(
        lanes % 8 >= 3, x[lanes - 3], x[lanes // 8 * 8 + (lanes - 3) % 8] + 100
    ),
    "quad_shuffle_and_fill_up(x, x + 100, 1)": np.where(rank >= 1, x[lanes - 1], x[quads + 3] + 100),
    "quad_shuffle(x, 3)": x[quads + 3],
    "quad_shuffle_xor(x, 1)": x[lanes ^ 1],
    "quad_shuffle_down(x, 2)": x[np.where(rank < 2, lanes + 2, lanes)],
    "quad_shuffle_rotate_up(x, 1)": x[quads + (rank - 1) % 4],
    "simd_broadcast(make<float4>(float(x)), 3).w": x[3],
    "quad_broadcast(x, 2)": x[quads + 2],
    "ulong(simd_ballot(x > 20))": sum(1 << int(i) for i in lanes[x > 20]),
    "ulong(quad_ballot(x > 20))": [sum((x[q + i] > 20) << i for i in range(4)) for q in quads],
    "simd_all(x < 32) + 2 * simd_any(x == 40) + 4 * quad_any(x == 7) + 8 * quad_all(x < 22)": 1
    + 4 * (quads == 0)
    + 8 * (x.reshape(8, 4).max(1) < 22).repeat(4),
    "simd_is_first() + 2 * quad_is_first()": (lanes == 0) + 2 * (rank == 0),
    "simd_active_threads_mask().all() + 2 * quad_active_threads_mask().all()": 3,
    "simd_broadcast_first(x + 5) + __metal_simd_shuffle(x, 4)": 5 + x[4],
    "simd_sum(make<ulong4>(ulong(x))).z": x.sum(),
}
row, column = (lanes // 4 & 4) + lanes // 2 % 4, (lanes // 4 & 2) * 2 + lanes % 2 * 2
pairs = np.stack([row * 8 + column, row * 8 + column + 1], 1)
a, b = np.arange(64.0).reshape(8, 8), np.arange(64.0)[::-1].reshape(8, 8) % 7
MATRIX = {
    "simdgroup_float8x8 r; simdgroup_load(r, A);": np.arange(64).reshape(8, 8),
    "simdgroup_float8x8 r; simdgroup_load(r, (const device float *)A, 8, 0, true);": a.T,
    "simdgroup_float8x8 r; simdgroup_load(r, A, 4, ulong2{1, 2});": 9 + np.arange(8)[:, None] * 4 + np.arange(8),
    "simdgroup_float8x8 r(3.0f);": 3 * np.eye(8),
    "auto r = make_filled_simdgroup_matrix<float, 8, 8>(2.5f);": np.full((8, 8), 2.5),
    "simdgroup_float8x8 a, b, r; simdgroup_load(a, A); simdgroup_load(b, B); simdgroup_multiply(r, a, b);": a @ b,
    "simdgroup_float8x8 a, b; simdgroup_load(a, A); simdgroup_load(b, B); simdgroup_float8x8 r = b * a;": b @ a,
    """simdgroup_float8x8 a, r; simdgroup_bfloat8x8 b(2.0f); simdgroup_load(a, A);
       simdgroup_multiply_accumulate(r, a, b, a);""": 3 * a,
    """float t[64] = {}; simdgroup_float8x8 a, r; simdgroup_load(a, A); simdgroup_store(a, t, 8, 0, true);
       const ulong first = anymetal::matrix_column(lane) * 8 + anymetal::matrix_row(lane);
       r.thread_elements() = float2{t[first], t[first + 8]};""": a,
}  # fmt: skip


def of_integers(name: str, bits: int, is_signed: bool) -> dict[str, Callable[[int, int, int], int]]:
    """Exact functions of three integers: the results are reduced to the type afterwards, but those of `limited`."""
    most = (1 << (bits - is_signed)) - 1
    least = -most - 1 if is_signed else 0
    mask = (1 << bits) - 1

    def limited(value: int) -> int:
        return min(max(value, least), most)

    def field(a: int, offset: int, count: int) -> int:
        value = (a & mask) >> offset & ((1 << count) - 1)
        return value - (1 << count) if is_signed and count and value >> (count - 1) else value

    found = {
        "abs(a)": lambda a, b, c: abs(a),
        "absdiff(a, b)": lambda a, b, c: abs(a - b),
        "addsat(a, b)": lambda a, b, c: limited(a + b),
        "subsat(a, b)": lambda a, b, c: limited(a - b),
        "madsat(a, b, c)": lambda a, b, c: limited(a * b + c),
        "hadd(a, b)": lambda a, b, c: a + b >> 1,
        "rhadd(a, b)": lambda a, b, c: a + b + 1 >> 1,
        "mulhi(a, b)": lambda a, b, c: a * b >> bits,
        "madhi(a, b, c)": lambda a, b, c: (a * b >> bits) + c,
        "clz(a)": lambda a, b, c: bits - (a & mask).bit_length(),
        "ctz(a)": lambda a, b, c: (a & -a & mask).bit_length() - 1 if a else bits,
        "popcount(a)": lambda a, b, c: (a & mask).bit_count(),
        "reverse_bits(a)": lambda a, b, c: int(f"{a & mask:0{bits}b}"[::-1], 2),
        "rotate(a, b)": lambda a, b, c: (a & mask) << b % bits | (a & mask) >> (bits - b % bits),
        "min(a, b)": lambda a, b, c: min(a, b),
        "max3(a, b, c)": lambda a, b, c: max(a, b, c),
        "median3(a, b, c)": lambda a, b, c: sorted((a, b, c))[1],
        "clamp(a, min(b, c), max(b, c))": lambda a, b, c: sorted((a, b, c))[1],
        f"extract_bits(a, {bits // 2 - 1}, 3)": lambda a, b, c: field(a, bits // 2 - 1, 3),
        f"extract_bits(a, 0, {bits})": lambda a, b, c: a,
        "extract_bits(a, 3, 0)": lambda a, b, c: 0,
        "insert_bits(a, b, 2, 4)": lambda a, b, c: a & ~60 | (b & 15) << 2,
        f"insert_bits(a, b, 0, {bits})": lambda a, b, c: b,
    }
    if name in ("int", "uint"):
        found["mad24(a, b, c)"] = lambda a, b, c: a * b + c
    return found


def edges(code: str) -> list[int]:
    known = np.iinfo(code)
    near = {known.min, known.min + 1, -2, -1, 0, 1, 2, 5, known.max - 1, known.max, known.max // 3, known.max // 2 + 1}
    return sorted(number for number in near if known.min <= number <= known.max)


LARGEST = """exp 20 exp2 20 log 1e4 log2 1e4 log10 9 sqrt 1e4 sin 10 cos 10 tan 1.5 asin 1 acos 1 atan 9 sinh 5 cosh 5
tanh 3 asinh 9 floor 9 ceil 9 trunc 9 rint 9"""
FLOATS = {name: float(largest) for name, largest in re.findall(r"(\S+)\s(\S+)", LARGEST)}
POSITIVE = {"log", "log2", "sqrt", "log10"}
CONVERSIONS = ("half", "float"), ("bfloat", "float"), ("float", "half"), ("float", "bfloat"), ("half", "bfloat")
ENTRY = """
FUNCTION void fast(void *out) {
    put(out, float4{precise::fmax(v(NAN), v(1.0f)), precise::fmax(v(1.0f), v(NAN)), precise::sign(v(-0.0f)), 0});
}
template <class T, int N>
void scaled(device T *out, const device T *in, constant float &by, threadgroup uint2 *, uint3 p, ushort lane) {
    ANYMETAL_THREADS(N * 8) static ANYMETAL_LOCAL threadgroup int s[N];
    s[lane] = 3;
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
    threadgroup int *q = s + lane;
    atomic_thread_fence(mem_flags::mem_device, memory_order_acq_rel);
    out[p.y] = T(in[p.x] * by) + *q;
}
ANYMETAL_ENTRY((void *x, void *y, void *z), ANYMETAL_LIST(x, y, z), 0,
    scaled<half, 5>(anymetal::pointer{g->buffers[0]}, anymetal::pointer{g->buffers[1]},
    anymetal::pointer{g->buffers[2]}, anymetal::pointer{g->locals[0]}, anymetal::index{t, t + 1, 0},
    anymetal::index{t, 0, 0}))
ANYMETAL_ABOUT((&scaled<half, 5>), 0, true, 1, true, 2, false, 0, true)
"""


def source() -> str:
    parts = [PRELUDE]
    for name, rows in TABLES.items():
        body = "".join(f"put((char *)out + {SLOT} * {i}, {row[0]});\n" for i, row in enumerate(rows))
        parts += [f"FUNCTION void {name}(void *out) {{\n{body}}}"]
    for i, expression in enumerate(SIMD):
        parts += [f"FUNCTION void simd{i}(LANE) {{ int x = lane * 7 % 32; put(out, long({expression})); }}"]
    for name, numbers in (("A", a), ("B", b)):
        parts += [f"constant float {name}[64] = {{{', '.join(map(str, numbers.ravel()))}}};"]
    for i, code in enumerate(MATRIX):
        parts += [f"FUNCTION void matrix{i}(LANE) {{ {code} put(out, r.thread_elements()); }}"]
    for name, code in INTEGERS.items():
        for i, expression in enumerate(of_integers(name, 8 * int(code[1]), code[0] == "i")):
            function = f"[]({name} a, {name} b, {name} c) {{ return {expression}; }}"
            parts += [f"FUNCTION void on_{name}_{i}(ARRAYS({name}, {name})) {{ triples(in, n, out, {function}); }}"]
    for name in FLOATS:
        body = f"out[i] = i % 2 ? {name}(in[i]) : precise::{name}(float3{{in[i]}}).x;"
        parts += [f"FUNCTION void float_{name}(ARRAYS(float, float)) {{ for (uint i = 0; i < n; i++) {body} }}"]
    for to, of in CONVERSIONS:
        body = f"out[i] = anymetal::cast<{to}>(in[i]);"
        parts += [f"FUNCTION void {to}_of_{of}(ARRAYS({of}, {to})) {{ for (uint i = 0; i < n; i++) {body} }}"]
    parts += [ENTRY]
    return "\n".join(parts)


def run(*command: str | Path, text: str = "") -> None:
    done = subprocess.run(list(map(str, command)), input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]


def compiled(folder: Path, text: str, *flags: str) -> ctypes.CDLL:
    """Return a library with the functions of a text and the launcher's part for them."""
    assert CLANG is not None
    objects = folder / "kernels.o", folder / "launcher.o"
    run(
        *CLANG.front,
        *RUNNING,
        *HOST,
        *flags,
        *OWN,
        "-D__METAL_VERSION__=320",
        "-emit-obj",
        "-o",
        objects[0],
        "-",
        text=text,
    )
    pic = "-mrelocation-model", "pic", "-pic-level", "2"
    run(
        *CLANG.front,
        "-cc1",
        "-x",
        "c",
        *HOST[:2],
        *pic,
        "-O1",
        "-w",
        *OWN,
        "-emit-obj",
        "-o",
        objects[1],
        "-",
        text=LAUNCHER,
    )
    linked = folder / "library.so"
    CLANG.make([*CLANG.driver, "-shared", "-nostdlib", *map(str, objects), "-o", str(linked)])
    return ctypes.CDLL(str(linked))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compiled(tmp_path_factory.mktemp("headers"), source())


def same(slot: npt.NDArray[np.uint8], code: str, expected: Any) -> str:
    """Return what differs."""
    wanted = np.atleast_1d(np.array(expected)).astype(code)
    got = slot[: wanted.nbytes].view(code)
    equal = np.array_equal(got, wanted, equal_nan=code.startswith("f"))
    return "" if equal else f"{got} instead of {wanted}"


@pytest.mark.parametrize("name", TABLES)
def test_expressions(library: ctypes.CDLL, name: str) -> None:
    rows = TABLES[name]
    out = np.zeros((len(rows), SLOT), np.uint8)
    library[name](out.ctypes)
    wrong = [f"{row[0]}: {what}" for row, slot in zip(rows, out, strict=True) if (what := same(slot, *row[1:]))]
    assert not wrong, "\n".join(wrong)


def in_simdgroup(library: ctypes.CDLL, name: str, count: int = 32) -> npt.NDArray[np.uint8]:
    out = np.zeros((32, SLOT), np.uint8)
    library.simdgroup(library[name], out.ctypes, count)
    return out


def test_simdgroup_functions(library: ctypes.CDLL) -> None:
    wrong = []
    for i, (expression, expected) in enumerate(SIMD.items()):
        got = in_simdgroup(library, f"simd{i}")[:, :8].copy().view("i8").ravel()
        if not np.array_equal(got, np.broadcast_to(expected, 32)):
            wrong.append(f"{expression}: {got} instead of {expected}")
    assert not wrong, "\n".join(wrong)


def test_lanes_that_are_not_active(library: ctypes.CDLL) -> None:
    few = {"simd_sum(x)": x[:6].sum(), "ulong(simd_ballot(x > 20))": 24, "quad_sum(x)": [42, 42, 42, 42, 31, 31]}
    for expression, expected in few.items():
        got = in_simdgroup(library, f"simd{list(SIMD).index(expression)}", 6)[:6, :8].copy().view("i8").ravel()
        np.testing.assert_array_equal(got, np.broadcast_to(expected, 6))


def test_the_launcher_learns_the_place_in_the_source(library: ctypes.CDLL) -> None:
    in_simdgroup(library, "simd0")
    rows = source().splitlines()
    line = next(i for i, row in enumerate(rows) if "void simd0(" in row)
    assert list((ctypes.c_uint * 3).in_dll(library, "calls")) == [0, line + 1, rows[line].index("simd_sum(x)") + 1]


@pytest.mark.parametrize("code", MATRIX)
def test_simdgroup_matrices(library: ctypes.CDLL, code: str) -> None:
    out = in_simdgroup(library, f"matrix{list(MATRIX).index(code)}")[:, :8].copy().view("f4")
    np.testing.assert_array_equal(out, np.float32(MATRIX[code]).ravel()[pairs])


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(library: ctypes.CDLL, name: str) -> None:
    code = INTEGERS[name]
    bits, is_signed = 8 * int(code[1]), code[0] == "i"
    inputs = np.array(edges(code), code)
    triples = list(itertools.product(inputs.tolist(), repeat=3))
    for i, (expression, function) in enumerate(of_integers(name, bits, is_signed).items()):
        out = np.zeros(len(triples), code)
        library[f"on_{name}_{i}"](inputs.ctypes, len(inputs), out.ctypes)
        for triple, got in zip(triples, out.tolist(), strict=True):
            wanted = function(*triple) & (2**bits - 1)
            wanted -= 2**bits if is_signed and wanted >> (bits - 1) else 0
            assert got == wanted, (expression, triple)


@pytest.mark.parametrize("name", FLOATS)
def test_floats(library: ctypes.CDLL, name: str) -> None:
    inputs = np.linspace(1e-6 if name in POSITIVE else -FLOATS[name], FLOATS[name], 4000, dtype=np.float32)
    out = np.zeros_like(inputs)
    library[f"float_{name}"](inputs.ctypes, len(inputs), out.ctypes)
    exact = getattr(np, {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh"}.get(name, name))(
        np.float64(inputs)
    )
    np.testing.assert_allclose(out, exact, rtol=5e-7, atol=1e-7 if name in ("sin", "cos") else 0)


def converted(library: ctypes.CDLL, name: str, inputs: Any, code: str) -> Any:
    out = np.zeros(len(inputs), code)
    library[name](inputs.ctypes, len(inputs), out.ctypes)
    return out


def test_rounding_to_bfloat_and_half(library: ctypes.CDLL) -> None:
    patterns = np.arange(2**16, dtype=np.uint32)
    words = np.concatenate([patterns << 16 | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    values = words.astype(np.uint32).view(np.float32)
    bits = converted(library, "bfloat_of_float", values, "u2")
    is_nan = np.isnan(values)
    rounded = (words.astype(np.uint64) + 0x7FFF + (words >> 16 & 1)) >> 16
    np.testing.assert_array_equal(bits[~is_nan], rounded[~is_nan])
    assert ((bits[is_nan] & 0x7FFF) > 0x7F80).all()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(converted(library, "half_of_float", values, "f2"), values.astype(np.float16))
    short = patterns.astype(np.uint16)
    wide = (patterns << 16).view(np.float32)
    np.testing.assert_array_equal(converted(library, "float_of_bfloat", short, "f4"), wide)
    np.testing.assert_array_equal(
        converted(library, "float_of_half", short, "f4"), short.view(np.float16).astype(np.float32)
    )
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(converted(library, "half_of_bfloat", short, "f2"), wide.astype(np.float16))


def test_precise_functions_with_fast_math(tmp_path: Path) -> None:
    out = np.zeros(SLOT, np.uint8)
    compiled(tmp_path, PRELUDE + ENTRY, *FAST).fast(out.ctypes)
    assert not same(out, "f4", [1, 1, 0, 0])
    assert np.signbit(out.view("f4")[2])


class Group(ctypes.Structure):
    """``anymetal_group`` of abi.h as far as the entry reads it."""

    _fields_ = (("buffers", ctypes.c_void_p), ("locals", ctypes.c_void_p), ("rest", ctypes.c_uint32 * 20))


def test_the_entry(library: ctypes.CDLL) -> None:
    about = (ctypes.c_uint32 * 25).in_dll(library, "anymetal_about")
    print(list(about))
    halves, floats, uints = ord("f") * 256 + 2, ord("f") * 256 + 4, ord("u") * 256 + 4
    rows = [*(2, 2, 1, 0, halves, 1), *(2, 2, 0, 0, halves, 1), *(4, 4, 0, 1, floats, 1), *(8, 8, 1, 0, uints, 1)]
    assert list(about) == [25, *rows]
    first, end = (ctypes.c_uint64 * 2).in_dll(library, "anymetal_local")
    assert end - first == 20
    bindings = (ctypes.c_uint32 * 8).in_dll(library, "anymetal_bindings")
    assert list(bindings) == [0, 1, 1, 1, 2, 0, 0, 1]
    named, _ = (ctypes.c_uint64 * 2).in_dll(library, "anymetal_named")
    assert ctypes.c_uint32.from_address(named).value == 40
    out, values, by = np.zeros(8, np.float16), np.arange(8, dtype=np.float16), np.full(1, 2, np.float32)
    buffers = (ctypes.c_void_p * 3)(*(array.ctypes.data for array in (out, values, by)))
    group = Group(ctypes.addressof(buffers), ctypes.addressof(buffers))
    assert library.thread(library.anymetal_thread, ctypes.byref(group), 4) == 0
    assert out.tolist() == [0, 0, 0, 0, 0, 11, 0, 0]
    assert ctypes.string_at(first + 16, 4) == b"\3\0\0\0"
    assert ctypes.c_int64.in_dll(library, "found").value == 0
    assert library.thread(library.anymetal_thread, ctypes.byref(group), 7) == 1
    assert list((ctypes.c_int64 * 4).in_dll(library, "found"))[:2] == [7, 5]


@pytest.mark.parametrize("version", ["230", "240", "300", "310", "320", "400"])
def test_all_passes_parse_the_headers(version: str) -> None:
    assert CLANG is not None
    options = (f"-D__METAL_VERSION__={version}", "-fsyntax-only", "-")
    run(*CLANG.front, *RUNNING, *HOST, *options, text="ANYMETAL_ENTRY((), ANYMETAL_LIST(), 0, (void)0)")
    extensions = toolchain.STRICT_EXTENSIONS + (toolchain.FUNCTION_POINTERS if int(version) >= 310 else "")
    strict = *toolchain.STRICT_FLAGS, "-D__METAL__=1", extensions, "-include", str(toolchain.LIBRARY_HEADER)
    headers = {path.name: path.read_text() for path in (toolchain.SHIM / "metal").glob("metal_*")}
    names = sorted(name for name, text in headers.items() if "#error" not in text and "tensor" not in name)
    text = "".join(f"#include <{name}>\n" for name in [*names, "simd/simd.h"])
    run(
        *CLANG.front,
        *strict,
        *options,
        text=f"{text}using namespace metal; kernel void f(device float *a) {{ *a = 1.0f; }}",
    )


def test_kernels_compile_to_ptx(tmp_path: Path) -> None:
    assert CLANG is not None
    target = (
        "-triple",
        "nvptx64-nvidia-cuda",
        "-target-cpu",
        "sm_80",
        "-target-feature",
        "+ptx70",
        "-DANYMETAL_CUDA",
        "-O3",
    )
    text = (
        source()[: source().index("FUNCTION void on_char_0(")]
        + source()[source().index("template <class T, int N>\nvoid scaled") :]
    )
    text = text.replace("(T)i", "").replace("const device float *)A", "constant float *)A")
    run(*CLANG.front, *RUNNING, *target, "-D__METAL_VERSION__=320", "-S", "-o", tmp_path / "k.ptx", "-", text=text)
    ptx = (tmp_path / "k.ptx").read_text()
    for pattern in (
        r"\.entry anymetal_thread\(",
        r"\.b8 anymetal_about\[100\] = \{25,",
        r"\.shared [^\n]*\[20\]",
        r"bar\.sync",
        r"shfl\.sync",
    ):
        assert re.search(pattern, ptx), pattern


ACCEPTED = """
o[0] = max(*v, 0.0f).x + pow(v->x, 2) + precise::sin(v->x) + fast::exp(v->y) + clamp(half(1), 0.0h, 1.0h);
float3 q = *p; o[0] = dot(q, float3(1)) + p->x + (*p)[1];
float3x3 m = float3x3(1.0f); m[0][1] = 2; o[0] = (m * float3(1, 2, 3)).x; threadgroup float4x4 t[4]; t[0][1] = *v;
float2x2 m(1, 2, 3, 4); m = transpose(m) * m + 2.0f * m; matrix<half, 2, 2> h(m); o[0] = determinant(m);
simdgroup_float8x8 m; simdgroup_load(m, o, 8, ulong2(1, 2), true); simdgroup_multiply(m, m, m);
simdgroup_half8x8 m; m.thread_elements()[0] = 1; simdgroup_store(m, (device half *)o);
threadgroup atomic_int t; atomic_store_explicit(&t, 0, memory_order_relaxed);
atomic_fetch_add_explicit(a, 1, memory_order_relaxed); atomic<float> x;
bfloat b = bfloat(1.0f); o[0] = float(exp(b)) + float(max(b, b)) + isnan(v->x) + any(*v > 1);
o[0] = simd_sum(v->x) + quad_max(v->x) + simd_shuffle_and_fill_down(v->x, 0.0f, 1) + as_type<half2>(2u).x;
int e; float s = frexp(v->x, e), c; s = modf(s, c) + sincos(s, c) + ldexp(s, 2);
array<float, 2> x = {1, 2}; o[0] = x[1] + x.size() + numeric_limits<float>::max();
o[0] = select(1.0f, 2.0f, w > 2) + popcount(w) + max(1, 2) + min(w, 3u) + mulhi(w, w) + extract_bits(w, 1, 2);
"""
REJECTED = """
o[0] = max(v->x, 0); -> call to 'max' is ambiguous
uint x = min(w, 2); -> call to 'min' is ambiguous
half h = 1; o[0] = max(h, 1.0f); -> call to 'max' is ambiguous
o[0] = sin(1); -> call to 'sin' is ambiguous
o[0] = max(*v, half4(1)).x; -> no matching function for call to 'max'
o[0] = dot(1.0f, 2.0f); -> no matching function for call to 'dot'
o[0] = swap(1, 2); -> use of undeclared identifier 'swap'
atomic_int x; atomic_store_explicit(&x, 0, memory_order_relaxed); -> no matching function
threadgroup atomic_float x; atomic_store_explicit(&x, 0, memory_order_relaxed); -> no matching function
threadgroup float *t = o; -> cannot initialize a variable of type
float2x2 m(1, 2, 3); -> no matching constructor
"""


def test_the_strict_pass_knows_the_headers() -> None:
    assert CLANG is not None
    for line in (ACCEPTED + REJECTED).strip().splitlines():
        body, _, message = line.partition(" -> ")
        buffers = "device float *o, device const float4 *v, constant packed_float3 *p, device atomic_uint *a"
        text = f"using namespace metal; kernel void f({buffers}, constant uint &w) {{ {body} }}"
        text = strictly_rewritten(Source(Syntax(text)))
        found = CLANG.check(text, Options("3.2"))
        assert (message in found) if message else not found, (line, found)
