// numeric_limits. Sources specialize the bases for types of their own, by the names of Apple's headers.
#pragma once

namespace metal {

enum float_denorm_style { denorm_indeterminate = -1, denorm_absent = 0, denorm_present = 1 };
enum float_round_style { round_indeterminate = -1, round_toward_zero = 0, round_to_nearest = 1 };

#define ANYMETAL_IS(...) static constexpr constant bool __VA_ARGS__;
#define ANYMETAL_VALUE(T, NAME, ...) static constexpr T NAME() { return T(__VA_ARGS__); }
#define ANYMETAL_NUMBER(...) static constexpr constant int __VA_ARGS__;
struct _numeric_limits_impl_base {
    ANYMETAL_IS(is_specialized = true, is_signed = true, is_integer = false, is_exact = false, is_bounded = true)
    ANYMETAL_IS(has_infinity = false, has_quiet_NaN = false, has_signaling_NaN = false, has_denorm_loss = false)
    ANYMETAL_IS(is_iec559 = false, is_modulo = false, traps = false, tinyness_before = false)
    ANYMETAL_NUMBER(max_digits10 = 0, radix = 2)
    ANYMETAL_NUMBER(min_exponent = 0, min_exponent10 = 0, max_exponent = 0, max_exponent10 = 0)
    static constexpr constant float_denorm_style has_denorm = denorm_absent;
    static constexpr constant float_round_style round_style = round_toward_zero;
};
struct _fp_numeric_limits_impl_base : _numeric_limits_impl_base {
    ANYMETAL_IS(has_infinity = true, has_quiet_NaN = true, has_signaling_NaN = true, is_iec559 = true)
    static constexpr constant float_denorm_style has_denorm = denorm_present;
    static constexpr constant float_round_style round_style = round_to_nearest;
};
template <class T> struct _numeric_limits_impl { ANYMETAL_IS(is_specialized = false) };
template <class T> struct numeric_limits : _numeric_limits_impl<remove_cv_t<T>> {};

#define ANYMETAL_LIMITS(T, MIN, MAX) \
    template <> struct _numeric_limits_impl<T> : _numeric_limits_impl_base { \
        ANYMETAL_IS(is_signed = T(-1) < T(0), is_integer = true, is_exact = true, is_modulo = !is_signed) \
        ANYMETAL_NUMBER(digits = __is_same(T, bool) ? 1 : 8 * int(sizeof(T)) - is_signed, digits10 = digits * 3 / 10) \
        ANYMETAL_VALUE(T, min, MIN) ANYMETAL_VALUE(T, lowest, MIN) ANYMETAL_VALUE(T, max, MAX) \
        ANYMETAL_VALUE(T, epsilon, 0) ANYMETAL_VALUE(T, round_error, 0) ANYMETAL_VALUE(T, infinity, 0) \
        ANYMETAL_VALUE(T, quiet_NaN, 0) ANYMETAL_VALUE(T, signaling_NaN, 0) ANYMETAL_VALUE(T, denorm_min, 0) \
    };
ANYMETAL_LIMITS(bool, false, true)
#define ANYMETAL_LIMITS_OF(T) ANYMETAL_LIMITS(T, is_signed ? ~(~0ul >> (64 - digits)) : 0, ~0ul >> (64 - digits))
ANYMETAL_INTEGERS(ANYMETAL_LIMITS_OF)
#undef ANYMETAL_LIMITS

#define ANYMETAL_LIMITS(T, PREFIX, DENORM_MIN, U, QUIET, SIGNALING) \
    template <> struct _numeric_limits_impl<T> : _fp_numeric_limits_impl_base { \
        ANYMETAL_NUMBER(digits = PREFIX##_MANT_DIG, digits10 = PREFIX##_DIG, max_digits10 = 2 + digits * 3 / 10) \
        ANYMETAL_NUMBER(min_exponent = PREFIX##_MIN_EXP, max_exponent = PREFIX##_MAX_EXP) \
        ANYMETAL_NUMBER(min_exponent10 = PREFIX##_MIN_10_EXP, max_exponent10 = PREFIX##_MAX_10_EXP) \
        ANYMETAL_VALUE(T, min, PREFIX##_MIN) ANYMETAL_VALUE(T, lowest, -PREFIX##_MAX) ANYMETAL_VALUE(T, max, PREFIX##_MAX) \
        ANYMETAL_VALUE(T, epsilon, PREFIX##_EPSILON) ANYMETAL_VALUE(T, round_error, 0.5f) \
        ANYMETAL_VALUE(T, infinity, INFINITY) ANYMETAL_VALUE(T, denorm_min, DENORM_MIN) \
        ANYMETAL_VALUE(T, quiet_NaN, anymetal::bits<T>(U(QUIET))) \
        ANYMETAL_VALUE(T, signaling_NaN, anymetal::bits<T>(U(SIGNALING))) \
    };
ANYMETAL_LIMITS(float, FLT, 0x1p-149f, uint, 0x7fc00000, 0x7fa00000)
ANYMETAL_LIMITS(half, HALF, 0x1p-24f, ushort, 0x7e00, 0x7d00)
#if __METAL_VERSION__ >= 310
ANYMETAL_LIMITS(bfloat, BFLT, 0x1p-133f, ushort, 0x7fc0, 0x7fa0)
#endif
#undef ANYMETAL_LIMITS

// Of a vector: those of its components, in each of them.
template <class T, int N>
struct _numeric_limits_impl<T __attribute__((ext_vector_type(N)))> : _numeric_limits_impl<T> {
    typedef _numeric_limits_impl<T> of;
    typedef vec<T, N> all;
#define ANYMETAL_LIMIT(NAME) static constexpr all NAME() { return all(of::NAME()); }
    ANYMETAL_LIMIT(min) ANYMETAL_LIMIT(lowest) ANYMETAL_LIMIT(max) ANYMETAL_LIMIT(epsilon) ANYMETAL_LIMIT(round_error)
    ANYMETAL_LIMIT(infinity) ANYMETAL_LIMIT(quiet_NaN) ANYMETAL_LIMIT(signaling_NaN) ANYMETAL_LIMIT(denorm_min)
#undef ANYMETAL_LIMIT
};

} // namespace metal
