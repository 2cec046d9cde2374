// numeric_limits.
#pragma once

namespace metal {

template <class T> struct numeric_limits;
#define MPSREF_LIMITS(T, MIN, MAX) \
    template <> struct numeric_limits<T> { \
        static constexpr T min() { return MIN; } \
        static constexpr T lowest() { return MIN; } \
        static constexpr T max() { return MAX; } \
    };
MPSREF_LIMITS(bool, false, true)
MPSREF_LIMITS(char, CHAR_MIN, CHAR_MAX)
MPSREF_LIMITS(uchar, 0, UCHAR_MAX)
MPSREF_LIMITS(short, SHRT_MIN, SHRT_MAX)
MPSREF_LIMITS(ushort, 0, USHRT_MAX)
MPSREF_LIMITS(int, INT_MIN, INT_MAX)
MPSREF_LIMITS(uint, 0, UINT_MAX)
MPSREF_LIMITS(long, LONG_MIN, LONG_MAX)
MPSREF_LIMITS(ulong, 0, ULONG_MAX)
#undef MPSREF_LIMITS
#define MPSREF_LIMITS(T, PREFIX) \
    template <> struct numeric_limits<T> { \
        static constexpr T min() { return PREFIX##_MIN; } \
        static constexpr T lowest() { return -PREFIX##_MAX; } \
        static constexpr T max() { return PREFIX##_MAX; } \
        static constexpr T epsilon() { return PREFIX##_EPSILON; } \
        static constexpr T infinity() { return T(INFINITY); } \
        static constexpr T quiet_NaN() { return T(NAN); } \
    };
MPSREF_LIMITS(float, FLT)
MPSREF_LIMITS(half, HALF)
#if __METAL_VERSION__ >= 310
MPSREF_LIMITS(bfloat, BFLT)
#endif
#undef MPSREF_LIMITS

} // namespace metal
