// Mathematical and common functions of floating-point numbers: the builtins of the compiler. half and bfloat go through
// float and are rounded once.
#pragma once

// A function of the C library; on an NVIDIA GPU of libdevice.
#ifdef ANYMETAL_CUDA
#define ANYMETAL_C(NAME) __nv_##NAME
#define ANYMETAL_RSQRT(A) __nv_rsqrtf(A)
#define ANYMETAL_DECLARE_1(NAME) float __nv_##NAME(float);
#define ANYMETAL_DECLARE_2(NAME) float __nv_##NAME(float, float);
extern "C" {
ANYMETAL_DECLARE_1(acosf) ANYMETAL_DECLARE_1(acoshf) ANYMETAL_DECLARE_1(asinf) ANYMETAL_DECLARE_1(asinhf)
ANYMETAL_DECLARE_1(atanf) ANYMETAL_DECLARE_1(atanhf) ANYMETAL_DECLARE_1(cosf) ANYMETAL_DECLARE_1(coshf)
ANYMETAL_DECLARE_1(expf) ANYMETAL_DECLARE_1(exp2f) ANYMETAL_DECLARE_1(logf) ANYMETAL_DECLARE_1(log10f)
ANYMETAL_DECLARE_1(log2f) ANYMETAL_DECLARE_1(roundf) ANYMETAL_DECLARE_1(sinf) ANYMETAL_DECLARE_1(sinhf)
ANYMETAL_DECLARE_1(rsqrtf) ANYMETAL_DECLARE_1(tanf) ANYMETAL_DECLARE_1(tanhf)
ANYMETAL_DECLARE_2(atan2f) ANYMETAL_DECLARE_2(fmodf) ANYMETAL_DECLARE_2(powf) ANYMETAL_DECLARE_2(nextafterf)
float __nv_ldexpf(float, int);
}
#else
#define ANYMETAL_C(NAME) __builtin_##NAME
#define ANYMETAL_RSQRT(A) (1.0f / __builtin_sqrtf(A))
#endif
#define ANYMETAL_PI 3.14159265358979323846f

namespace anymetal {

#pragma float_control(precise, on, push)
// Angles in units of pi: the same one, and one from -0.5 to 0.5 with the same sine. Both are exact.
inline float half_turns(float a) { return a - 2.0f * __builtin_rintf(0.5f * a); } // from -1 to 1
inline float quarter_turns(float a) {
    const float r = half_turns(a);
    return __builtin_fabsf(r) > 0.5f ? __builtin_copysignf(1.0f - __builtin_fabsf(r), r) : r;
}
inline float smooth(float t) { return t * t * (3.0f - 2.0f * t); }

// a * b + c for half: rounded to odd, so that rounding the result to half is the only rounding.
inline float fused(float a, float b, float c) {
    const float product = a * b, sum = product + c, part = sum - product;
    const float error = (product - (sum - part)) + (c - part);
    const uint n = bits<uint>(sum);
    const bool is_inexact = (error > 0.0f || error < 0.0f) && (n & 1) == 0;
    return is_inexact ? bits<float>((error > 0.0f) == (sum > 0.0f) ? n + 1 : n - 1) : sum;
}
#pragma float_control(pop)

} // namespace anymetal

namespace metal {

#define ANYMETAL_FLOAT_1(NAME, ...) \
    inline float NAME(float a) { typedef float T; return __VA_ARGS__; } \
    inline half NAME(half x) { typedef half T; const float a = x; return half(__VA_ARGS__); } \
    ANYMETAL_TEMPLATE_1(NAME, anymetal::floats<V>)
#define ANYMETAL_FLOAT_2(NAME, ...) \
    inline float NAME(float a, float b) { return __VA_ARGS__; } \
    inline half NAME(half x, half y) { const float a = x, b = y; return half(__VA_ARGS__); } \
    ANYMETAL_TEMPLATE_2(NAME, V)
#define ANYMETAL_FLOAT_3(NAME, ...) \
    inline float NAME(float a, float b, float c) { typedef float T; return __VA_ARGS__; } \
    inline half NAME(half x, half y, half z) { \
        typedef half T; \
        const float a = x, b = y, c = z; \
        return half(__VA_ARGS__); \
    } \
    ANYMETAL_TEMPLATE_3(NAME, V)
#include "functions.h"
namespace precise {
#pragma float_control(precise, on, push)
#include "functions.h"
#pragma float_control(pop)
} // namespace precise

inline float ldexp(float x, int e) { return ANYMETAL_C(ldexpf)(x, e); }
inline half ldexp(half x, int e) { return half(ANYMETAL_C(ldexpf)(float(x), e)); }
template <class A, class E, class V = anymetal::composite<A>>
inline V ldexp(A a, E e) ANYMETAL_EACH(V, ldexp(anymetal::lane<T>(a, i), anymetal::lane<int>(e, i)))

template <class T> inline T sincos(T x, thread T &cosine) {
    cosine = cos(x);
    return sin(x);
}
template <class T> inline T modf(T x, thread T &whole) { // of an infinity the fraction is 0
    whole = trunc(x);
    return select(copysign(x - whole, x), copysign(T(0.0f), x), x == whole);
}
inline float frexp(float x, thread int &exponent) { // x = fraction * 2^exponent, 0.5 <= |fraction| < 1
    uint bits = anymetal::bits<uint>(x);
    exponent = 0;
    if ((bits & 0x7fffffff) == 0 || (bits & 0x7f800000) == 0x7f800000) return x;
    if ((bits & 0x7f800000) == 0) { // subnormal
        bits = anymetal::bits<uint>(x * 0x1p24f);
        exponent = -24;
    }
    exponent += int(bits >> 23 & 255) - 126;
    return anymetal::bits<float>((bits & 0x807fffff) | 0x3f000000);
}
inline half frexp(half x, thread int &exponent) { return half(frexp(float(x), exponent)); }
template <class T, int N> inline vec<T, N> frexp(vec<T, N> x, thread vec<int, N> &exponent) {
    ANYMETAL_UNROLLED for (int i = 0, e; i < N; i++) {
        x[i] = frexp(x[i], e);
        exponent[i] = e;
    }
    return x;
}

inline int ilogb(float x) { // INT_MIN of 0, INT_MAX of infinity and NaN
    int exponent;
    const bool is_zero = (anymetal::bits<uint>(x) & 0x7fffffff) == 0;
    const bool is_finite = (anymetal::bits<uint>(x) & 0x7f800000) != 0x7f800000;
    frexp(x, exponent);
    return is_zero ? INT_MIN : is_finite ? exponent - 1 : INT_MAX;
}
inline int ilogb(half x) { return ilogb(float(x)); }
template <class T, int N> inline vec<int, N> ilogb(vec<T, N> x) {
    vec<int, N> r;
    ANYMETAL_UNROLLED for (int i = 0; i < N; i++) r[i] = ilogb(x[i]);
    return r;
}

#if __METAL_VERSION__ >= 310
template <class T, class U> inline T anymetal_next(T a, T b) {
    if (a != a || b != b) return a + b;
    if (a == b) return b;
    if (a == T(0.0f)) return b > a ? anymetal::bits<T>(U(1)) : -anymetal::bits<T>(U(1));
    const U n = anymetal::bits<U>(a);
    return anymetal::bits<T>(U((a < b) == (a > T(0.0f)) ? n + 1 : n - 1));
}
inline float nextafter(float a, float b) { return anymetal_next<float, uint>(a, b); }
inline half nextafter(half a, half b) { return anymetal_next<half, ushort>(a, b); }
ANYMETAL_TEMPLATE_2(nextafter, V)
#endif

#undef ANYMETAL_FLOAT_1
#undef ANYMETAL_FLOAT_2
#undef ANYMETAL_FLOAT_3
#undef ANYMETAL_C
#undef ANYMETAL_RSQRT
#define ANYMETAL_FLOAT_1(NAME, ...) using metal::NAME;
#define ANYMETAL_FLOAT_2(NAME, ...) using metal::NAME;
#define ANYMETAL_FLOAT_3(NAME, ...) using metal::NAME;
#define ANYMETAL_ALSO(M) M(ilogb) M(ldexp) M(frexp) M(modf) M(sincos)
#define ANYMETAL_USING(NAME) using metal::NAME;
namespace fast {
#include "functions.h"
ANYMETAL_ALSO(ANYMETAL_USING)
} // namespace fast
namespace precise {
ANYMETAL_ALSO(ANYMETAL_USING)
} // namespace precise
#undef ANYMETAL_FLOAT_1
#undef ANYMETAL_FLOAT_2
#undef ANYMETAL_FLOAT_3
#undef ANYMETAL_ALSO
#undef ANYMETAL_USING

} // namespace metal
