// Mathematical, common, relational, integer and geometric functions: overloads for every scalar and vector type.
// Scalars call the compiler's builtins; half goes through float and is rounded once; vectors go lane by lane.
#pragma once

#define MPSREF_LANES_1(R, T, NAME) \
    inline R##2 NAME(T##2 a) { return R##2{NAME(a.x), NAME(a.y)}; } \
    inline R##3 NAME(T##3 a) { return R##3{NAME(a.x), NAME(a.y), NAME(a.z)}; } \
    inline R##4 NAME(T##4 a) { return R##4{NAME(a.x), NAME(a.y), NAME(a.z), NAME(a.w)}; }
#define MPSREF_LANES_2(T, U, NAME) \
    inline T##2 NAME(T##2 a, U##2 b) { return T##2{NAME(a.x, b.x), NAME(a.y, b.y)}; } \
    inline T##3 NAME(T##3 a, U##3 b) { return T##3{NAME(a.x, b.x), NAME(a.y, b.y), NAME(a.z, b.z)}; } \
    inline T##4 NAME(T##4 a, U##4 b) { return T##4{NAME(a.x, b.x), NAME(a.y, b.y), NAME(a.z, b.z), NAME(a.w, b.w)}; }
#define MPSREF_LANES_3(T, NAME) \
    inline T##2 NAME(T##2 a, T##2 b, T##2 c) { return T##2{NAME(a.x, b.x, c.x), NAME(a.y, b.y, c.y)}; } \
    inline T##3 NAME(T##3 a, T##3 b, T##3 c) { \
        return T##3{NAME(a.x, b.x, c.x), NAME(a.y, b.y, c.y), NAME(a.z, b.z, c.z)}; \
    } \
    inline T##4 NAME(T##4 a, T##4 b, T##4 c) { \
        return T##4{NAME(a.x, b.x, c.x), NAME(a.y, b.y, c.y), NAME(a.z, b.z, c.z), NAME(a.w, b.w, c.w)}; \
    }

// A function of the C library; on an NVIDIA GPU of libdevice.
#ifdef MPSREF_CUDA
#define MPSREF_C(NAME) __nv_##NAME
#define MPSREF_DECLARE_1(NAME) float __nv_##NAME(float);
#define MPSREF_DECLARE_2(NAME) float __nv_##NAME(float, float);
extern "C" {
MPSREF_DECLARE_1(acosf) MPSREF_DECLARE_1(acoshf) MPSREF_DECLARE_1(asinf) MPSREF_DECLARE_1(asinhf)
MPSREF_DECLARE_1(atanf) MPSREF_DECLARE_1(atanhf) MPSREF_DECLARE_1(cosf) MPSREF_DECLARE_1(coshf)
MPSREF_DECLARE_1(expf) MPSREF_DECLARE_1(exp2f) MPSREF_DECLARE_1(logf) MPSREF_DECLARE_1(log10f)
MPSREF_DECLARE_1(log2f) MPSREF_DECLARE_1(roundf) MPSREF_DECLARE_1(sinf) MPSREF_DECLARE_1(sinhf)
MPSREF_DECLARE_1(rsqrtf) MPSREF_DECLARE_1(tanf) MPSREF_DECLARE_1(tanhf)
MPSREF_DECLARE_2(atan2f) MPSREF_DECLARE_2(fmodf) MPSREF_DECLARE_2(powf)
float __nv_ldexpf(float, int);
}
#undef MPSREF_DECLARE_1
#undef MPSREF_DECLARE_2
#else
#define MPSREF_C(NAME) __builtin_##NAME
#endif

// EXPRESSION is of float a, b, c and gives a float.
#define MPSREF_FLOAT_1(NAME, EXPRESSION) \
    inline float NAME(float a) { return EXPRESSION; } \
    inline half NAME(half h) { float a = h; return half(EXPRESSION); } \
    MPSREF_LANES_1(float, float, NAME) MPSREF_LANES_1(half, half, NAME)
#define MPSREF_FLOAT_2(NAME, EXPRESSION) \
    inline float NAME(float a, float b) { return EXPRESSION; } \
    inline half NAME(half g, half h) { float a = g, b = h; return half(EXPRESSION); } \
    MPSREF_LANES_2(float, float, NAME) MPSREF_LANES_2(half, half, NAME)
#define MPSREF_FLOAT_3(NAME, EXPRESSION) \
    inline float NAME(float a, float b, float c) { return EXPRESSION; } \
    inline half NAME(half g, half h, half i) { float a = g, b = h, c = i; return half(EXPRESSION); } \
    MPSREF_LANES_3(float, NAME) MPSREF_LANES_3(half, NAME)

namespace metal {

MPSREF_FLOAT_1(acos, MPSREF_C(acosf)(a))
MPSREF_FLOAT_1(acosh, MPSREF_C(acoshf)(a))
MPSREF_FLOAT_1(asin, MPSREF_C(asinf)(a))
MPSREF_FLOAT_1(asinh, MPSREF_C(asinhf)(a))
MPSREF_FLOAT_1(atan, MPSREF_C(atanf)(a))
MPSREF_FLOAT_1(atanh, MPSREF_C(atanhf)(a))
MPSREF_FLOAT_1(ceil, __builtin_ceilf(a))
MPSREF_FLOAT_1(cos, MPSREF_C(cosf)(a))
MPSREF_FLOAT_1(cosh, MPSREF_C(coshf)(a))
MPSREF_FLOAT_1(cospi, MPSREF_C(cosf)(a * 3.14159265358979323846f))
MPSREF_FLOAT_1(exp, MPSREF_C(expf)(a))
MPSREF_FLOAT_1(exp10, MPSREF_C(powf)(10.0f, a))
MPSREF_FLOAT_1(exp2, MPSREF_C(exp2f)(a))
MPSREF_FLOAT_1(fabs, __builtin_fabsf(a))
MPSREF_FLOAT_1(abs, __builtin_fabsf(a))
MPSREF_FLOAT_1(floor, __builtin_floorf(a))
MPSREF_FLOAT_1(fract, __builtin_fminf(a - __builtin_floorf(a), 0x1.fffffep-1f))
MPSREF_FLOAT_1(log, MPSREF_C(logf)(a))
MPSREF_FLOAT_1(log10, MPSREF_C(log10f)(a))
MPSREF_FLOAT_1(log2, MPSREF_C(log2f)(a))
MPSREF_FLOAT_1(rint, __builtin_rintf(a))
MPSREF_FLOAT_1(round, MPSREF_C(roundf)(a))
#ifdef MPSREF_CUDA
MPSREF_FLOAT_1(rsqrt, __nv_rsqrtf(a))
#else
MPSREF_FLOAT_1(rsqrt, 1.0f / __builtin_sqrtf(a))
#endif
MPSREF_FLOAT_1(saturate, __builtin_fminf(__builtin_fmaxf(a, 0.0f), 1.0f))
MPSREF_FLOAT_1(sign, a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : a)
MPSREF_FLOAT_1(sin, MPSREF_C(sinf)(a))
MPSREF_FLOAT_1(sinh, MPSREF_C(sinhf)(a))
MPSREF_FLOAT_1(sinpi, MPSREF_C(sinf)(a * 3.14159265358979323846f))
MPSREF_FLOAT_1(sqrt, __builtin_sqrtf(a))
MPSREF_FLOAT_1(tan, MPSREF_C(tanf)(a))
MPSREF_FLOAT_1(tanh, MPSREF_C(tanhf)(a))
MPSREF_FLOAT_1(trunc, __builtin_truncf(a))

MPSREF_FLOAT_2(atan2, MPSREF_C(atan2f)(a, b))
MPSREF_FLOAT_2(copysign, __builtin_copysignf(a, b))
MPSREF_FLOAT_2(divide, a / b)
MPSREF_FLOAT_2(fdim, a > b ? a - b : 0.0f)
MPSREF_FLOAT_2(fmax, __builtin_fmaxf(a, b))
MPSREF_FLOAT_2(fmin, __builtin_fminf(a, b))
MPSREF_FLOAT_2(max, __builtin_fmaxf(a, b))
MPSREF_FLOAT_2(min, __builtin_fminf(a, b))
MPSREF_FLOAT_2(fmod, MPSREF_C(fmodf)(a, b))
MPSREF_FLOAT_2(pow, MPSREF_C(powf)(a, b))
MPSREF_FLOAT_2(powr, MPSREF_C(powf)(a, b))
MPSREF_FLOAT_2(step, b < a ? 0.0f : 1.0f)

MPSREF_FLOAT_3(clamp, __builtin_fminf(__builtin_fmaxf(a, b), c))
MPSREF_FLOAT_3(fma, __builtin_fmaf(a, b, c))
MPSREF_FLOAT_3(mix, a + (b - a) * c)
inline float smoothstep(float low, float high, float x) {
    float t = saturate((x - low) / (high - low));
    return t * t * (3.0f - 2.0f * t);
}
inline half smoothstep(half low, half high, half x) { return half(smoothstep(float(low), float(high), float(x))); }
MPSREF_LANES_3(float, smoothstep)
MPSREF_LANES_3(half, smoothstep)

inline float ldexp(float x, int e) { return MPSREF_C(ldexpf)(x, e); }
inline half ldexp(half x, int e) { return half(MPSREF_C(ldexpf)(float(x), e)); }
MPSREF_LANES_2(float, int, ldexp)
MPSREF_LANES_2(half, int, ldexp)

template <class T> inline T sincos(T x, thread T &cosine) {
    cosine = cos(x);
    return sin(x);
}
template <class T> inline T modf(T x, thread T &whole) {
    whole = trunc(x);
    return x - whole;
}
inline float frexp(float x, thread int &exponent) { // x = fraction * 2^exponent, 0.5 <= |fraction| < 1
    if (x == 0.0f) {
        exponent = 0;
        return x;
    }
    uint bits = __builtin_bit_cast(uint, x);
    exponent = int(bits >> 23 & 255) - 126;
    return __builtin_bit_cast(float, (bits & 0x807fffffu) | 0x3f000000u);
}
inline half frexp(half x, thread int &exponent) { return half(frexp(float(x), exponent)); }

// Fast math is on, as in metalcompute, where the first four of these are not to be relied on.
#define MPSREF_TEST(NAME, EXPRESSION) \
    inline bool NAME(float a) { return EXPRESSION; } \
    inline bool NAME(half h) { float a = h; return EXPRESSION; } \
    MPSREF_LANES_1(bool, float, NAME) MPSREF_LANES_1(bool, half, NAME)
MPSREF_TEST(isfinite, __builtin_isfinite(a))
MPSREF_TEST(isinf, __builtin_isinf(a))
MPSREF_TEST(isnan, __builtin_isnan(a))
MPSREF_TEST(isnormal, __builtin_isnormal(a))
MPSREF_TEST(signbit, (__builtin_bit_cast(uint, a) >> 31) != 0)
inline bool isunordered(float a, float b) { return isnan(a) || isnan(b); }
inline bool isunordered(half a, half b) { return isnan(a) || isnan(b); }
inline bool isordered(float a, float b) { return !isunordered(a, b); }
inline bool isordered(half a, half b) { return !isunordered(a, b); }
#if __METAL_VERSION__ >= 310
inline bool isnan(bfloat a) { return isnan(float(a)); }
inline bool isinf(bfloat a) { return isinf(float(a)); }
inline bool isfinite(bfloat a) { return isfinite(float(a)); }
inline bool isunordered(bfloat a, bfloat b) { return isnan(a) || isnan(b); }
inline bfloat min(bfloat a, bfloat b) { return bfloat(min(float(a), float(b))); }
inline bfloat max(bfloat a, bfloat b) { return bfloat(max(float(a), float(b))); }
inline bfloat abs(bfloat a) { return bfloat(abs(float(a))); }
#endif
#undef MPSREF_TEST

#define MPSREF_INTEGER(T) \
    inline T min(T a, T b) { return b < a ? b : a; } \
    inline T max(T a, T b) { return a < b ? b : a; } \
    inline T clamp(T a, T b, T c) { return min(max(a, b), c); } \
    inline T abs(T a) { return a < 0 ? T(-a) : a; } \
    inline T absdiff(T a, T b) { return a < b ? T(b - a) : T(a - b); } \
    inline T hadd(T a, T b) { return T((a & b) + ((a ^ b) >> 1)); } \
    inline T rhadd(T a, T b) { return T((a | b) - ((a ^ b) >> 1)); } \
    inline T rotate(T a, T b) { \
        enum { bits = 8 * sizeof(T) }; \
        unsigned long u = (unsigned long)a & (~0ul >> (64 - bits)); \
        int n = int(b) & (bits - 1); \
        return n ? T(u << n | u >> (bits - n)) : a; \
    } \
    inline T popcount(T a) { return T(__builtin_popcountl((unsigned long)a & (~0ul >> (64 - 8 * sizeof(T))))); } \
    inline T ctz(T a) { return a ? T(__builtin_ctzl((unsigned long)a)) : T(8 * sizeof(T)); } \
    inline T clz(T a) { \
        unsigned long u = (unsigned long)a & (~0ul >> (64 - 8 * sizeof(T))); \
        return T(u ? __builtin_clzl(u) - (64 - 8 * int(sizeof(T))) : 8 * int(sizeof(T))); \
    } \
    inline T reverse_bits(T a) { \
        T r = 0; \
        for (uint i = 0; i < 8 * sizeof(T); i++) r |= T((a >> i & 1) ? T(1) << (8 * sizeof(T) - 1 - i) : 0); \
        return r; \
    } \
    MPSREF_LANES_2(T, T, min) MPSREF_LANES_2(T, T, max) MPSREF_LANES_3(T, clamp) MPSREF_LANES_1(T, T, abs) \
    MPSREF_LANES_2(T, T, absdiff) MPSREF_LANES_2(T, T, hadd) MPSREF_LANES_2(T, T, rhadd) \
    MPSREF_LANES_2(T, T, rotate) MPSREF_LANES_1(T, T, popcount) MPSREF_LANES_1(T, T, ctz) \
    MPSREF_LANES_1(T, T, clz) MPSREF_LANES_1(T, T, reverse_bits)
MPSREF_INTEGERS(MPSREF_INTEGER)
#undef MPSREF_INTEGER

#define MPSREF_INTEGER_32(T, WIDE) \
    inline T mulhi(T a, T b) { return T(WIDE(a) * WIDE(b) >> 32); } \
    inline T mul24(T a, T b) { return T(a * b); } \
    inline T mad24(T a, T b, T c) { return T(a * b + c); } \
    inline T madhi(T a, T b, T c) { return T(mulhi(a, b) + c); } \
    MPSREF_LANES_2(T, T, mulhi) MPSREF_LANES_2(T, T, mul24) MPSREF_LANES_3(T, mad24) MPSREF_LANES_3(T, madhi)
MPSREF_INTEGER_32(int, long)
MPSREF_INTEGER_32(uint, ulong)
#undef MPSREF_INTEGER_32

#define MPSREF_SELECT(T, C) \
    inline T##2 select(T##2 a, T##2 b, C##2 c) { return T##2{c.x ? b.x : a.x, c.y ? b.y : a.y}; } \
    inline T##3 select(T##3 a, T##3 b, C##3 c) { return T##3{c.x ? b.x : a.x, c.y ? b.y : a.y, c.z ? b.z : a.z}; } \
    inline T##4 select(T##4 a, T##4 b, C##4 c) { \
        return T##4{c.x ? b.x : a.x, c.y ? b.y : a.y, c.z ? b.z : a.z, c.w ? b.w : a.w}; \
    }
#define MPSREF_SELECTS(T) \
    inline T select(T a, T b, bool c) { return c ? b : a; } \
    MPSREF_SELECT(T, int) MPSREF_SELECT(T, short)
MPSREF_INTEGERS(MPSREF_SELECTS)
MPSREF_SELECTS(float)
MPSREF_SELECTS(half)
#undef MPSREF_SELECTS
#undef MPSREF_SELECT

inline bool any(bool a) { return a; }
inline bool all(bool a) { return a; }
#define MPSREF_QUANTIFIERS(T) \
    inline bool any(T##2 a) { return a.x || a.y; } \
    inline bool any(T##3 a) { return a.x || a.y || a.z; } \
    inline bool any(T##4 a) { return a.x || a.y || a.z || a.w; } \
    inline bool all(T##2 a) { return a.x && a.y; } \
    inline bool all(T##3 a) { return a.x && a.y && a.z; } \
    inline bool all(T##4 a) { return a.x && a.y && a.z && a.w; }
MPSREF_QUANTIFIERS(char)
MPSREF_QUANTIFIERS(short)
MPSREF_QUANTIFIERS(int)
MPSREF_QUANTIFIERS(long)
#undef MPSREF_QUANTIFIERS

#define MPSREF_GEOMETRIC(T) \
    inline T dot(T##2 a, T##2 b) { return a.x * b.x + a.y * b.y; } \
    inline T dot(T##3 a, T##3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; } \
    inline T dot(T##4 a, T##4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; } \
    inline T##3 cross(T##3 a, T##3 b) { \
        return T##3{a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x}; \
    } \
    MPSREF_LENGTHS(T, T##2) MPSREF_LENGTHS(T, T##3) MPSREF_LENGTHS(T, T##4)
#define MPSREF_LENGTHS(T, V) \
    inline T length_squared(V a) { return dot(a, a); } \
    inline T distance_squared(V a, V b) { return dot(a - b, a - b); } \
    inline T length(V a) { return sqrt(dot(a, a)); } \
    inline T distance(V a, V b) { return length(a - b); } \
    inline V normalize(V a) { return a * rsqrt(dot(a, a)); } \
    inline V reflect(V i, V n) { return i - n * (dot(n, i) * T(2.0f)); } \
    inline V faceforward(V n, V i, V r) { return dot(r, i) < T(0.0f) ? n : -n; }
MPSREF_GEOMETRIC(float)
MPSREF_GEOMETRIC(half)
#undef MPSREF_LENGTHS
#undef MPSREF_GEOMETRIC

// The accurate and the fast functions are the same ones here: both are within the error that MSL allows.
namespace fast { using namespace metal; }
namespace precise { using namespace metal; }

} // namespace metal

#undef MPSREF_FLOAT_1
#undef MPSREF_FLOAT_2
#undef MPSREF_FLOAT_3
#undef MPSREF_LANES_1
#undef MPSREF_LANES_2
#undef MPSREF_LANES_3
#undef MPSREF_C
