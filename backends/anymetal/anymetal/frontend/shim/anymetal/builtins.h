// Names by which Apple's headers call the compiler, for sources that do so as well. The last argument says whether the
// function may be fast; without it the function is that of metal.
#pragma once

namespace metal {

#define ANYMETAL_FLOAT_1(NAME, ...) \
    template <class T> inline T __metal_##NAME(T a, int math = __METAL_MAYBE_FAST_MATH__) { \
        return math == __METAL_PRECISE_MATH__ ? precise::NAME(a) : NAME(a); \
    }
#define ANYMETAL_FLOAT_2(NAME, ...) \
    template <class T> inline T __metal_##NAME(T a, T b, int math = __METAL_MAYBE_FAST_MATH__) { \
        return math == __METAL_PRECISE_MATH__ ? precise::NAME(a, b) : NAME(a, b); \
    }
#define ANYMETAL_FLOAT_3(NAME, ...) \
    template <class T> inline T __metal_##NAME(T a, T b, T c, int math = __METAL_MAYBE_FAST_MATH__) { \
        return math == __METAL_PRECISE_MATH__ ? precise::NAME(a, b, c) : NAME(a, b, c); \
    }
#include "functions.h"
#undef ANYMETAL_FLOAT_1
#undef ANYMETAL_FLOAT_2
#undef ANYMETAL_FLOAT_3

#define ANYMETAL_TEST(NAME) template <class T> inline auto __metal_##NAME(T a, int = 0) { return NAME(a); }
ANYMETAL_TEST(isfinite) ANYMETAL_TEST(isinf) ANYMETAL_TEST(isnan) ANYMETAL_TEST(isnormal) ANYMETAL_TEST(signbit)
#undef ANYMETAL_TEST
template <class T> inline T __metal_ldexp(T a, int exponent, int = 0) { return ldexp(a, exponent); }
template <class T> inline T __metal_frexp(T a, thread int *exponent, int = 0) { return frexp(a, *exponent); }
template <class T> inline T __metal_modf(T a, thread T *whole, int = 0) { return modf(a, *whole); }
template <class T> inline T __metal_sincos(T a, thread T *cosine, int = 0) { return sincos(a, *cosine); }
#if __METAL_VERSION__ >= 310
template <class T> inline T __metal_nextafter(T a, T b, int = 0) { return nextafter(a, b); }
#endif
inline ushort __metal_get_simdgroup_size(ushort = 0) { return ANYMETAL_SIMD_WIDTH; }
inline ushort __metal_get_thread_index_in_simdgroup(ushort = 0) { return ushort(anymetal::lane()); }

} // namespace metal
