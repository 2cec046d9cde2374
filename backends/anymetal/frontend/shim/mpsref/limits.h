// numeric_limits. Sources specialize the bases for types of their own, by the names of Apple's headers.
#pragma once

namespace metal {

enum float_denorm_style { denorm_indeterminate = -1, denorm_absent = 0, denorm_present = 1 };
enum float_round_style {
    round_indeterminate = -1,
    round_toward_zero = 0,
    round_to_nearest = 1,
    round_toward_infinity = 2,
    round_toward_neg_infinity = 3
};

#define MPSREF_IS(...) static constexpr constant bool __VA_ARGS__;
#define MPSREF_NUMBER(...) static constexpr constant int __VA_ARGS__;
struct _numeric_limits_impl_base {
    MPSREF_IS(is_specialized = true, is_signed = true, is_integer = false, is_exact = false, is_bounded = true)
    MPSREF_IS(has_infinity = false, has_quiet_NaN = false, has_signaling_NaN = false, has_denorm_loss = false)
    MPSREF_IS(is_iec559 = false, is_modulo = false, traps = false, tinyness_before = false)
    MPSREF_NUMBER(max_digits10 = 0, radix = 2, min_exponent = 0, min_exponent10 = 0, max_exponent = 0, max_exponent10 = 0)
    static constexpr constant float_denorm_style has_denorm = denorm_absent;
    static constexpr constant float_round_style round_style = round_toward_zero;
};
struct _fp_numeric_limits_impl_base : _numeric_limits_impl_base {
    MPSREF_IS(has_infinity = true, has_quiet_NaN = true, has_signaling_NaN = true, is_iec559 = true)
    static constexpr constant float_denorm_style has_denorm = denorm_present;
    static constexpr constant float_round_style round_style = round_to_nearest;
};
template <class T> struct _numeric_limits_impl {
    MPSREF_IS(is_specialized = false)
};
template <class T> struct numeric_limits : _numeric_limits_impl<remove_cv_t<T>> {};

#define MPSREF_LIMITS(T, MIN, MAX) \
    template <> struct _numeric_limits_impl<T> : _numeric_limits_impl_base { \
        MPSREF_IS(is_signed = T(-1) < T(0), is_integer = true, is_exact = true, is_modulo = !is_signed) \
        MPSREF_NUMBER(digits = __is_same(T, bool) ? 1 : 8 * int(sizeof(T)) - is_signed, digits10 = digits * 3 / 10) \
        static constexpr T min() { return T(MIN); } \
        static constexpr T lowest() { return T(MIN); } \
        static constexpr T max() { return T(MAX); } \
        static constexpr T epsilon() { return T(0); } \
        static constexpr T round_error() { return T(0); } \
        static constexpr T infinity() { return T(0); } \
        static constexpr T quiet_NaN() { return T(0); } \
        static constexpr T signaling_NaN() { return T(0); } \
        static constexpr T denorm_min() { return T(0); } \
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

#define MPSREF_LIMITS(T, PREFIX, DENORM_MIN, U, QUIET, SIGNALING) \
    template <> struct _numeric_limits_impl<T> : _fp_numeric_limits_impl_base { \
        MPSREF_NUMBER(digits = PREFIX##_MANT_DIG, digits10 = PREFIX##_DIG, max_digits10 = 2 + digits * 3 / 10) \
        MPSREF_NUMBER(min_exponent = PREFIX##_MIN_EXP, max_exponent = PREFIX##_MAX_EXP) \
        MPSREF_NUMBER(min_exponent10 = PREFIX##_MIN_10_EXP, max_exponent10 = PREFIX##_MAX_10_EXP) \
        static constexpr T min() { return PREFIX##_MIN; } \
        static constexpr T lowest() { return -PREFIX##_MAX; } \
        static constexpr T max() { return PREFIX##_MAX; } \
        static constexpr T epsilon() { return PREFIX##_EPSILON; } \
        static constexpr T round_error() { return T(0.5f); } \
        static constexpr T infinity() { return T(INFINITY); } \
        static constexpr T quiet_NaN() { return mpsref::bits<T>(U(QUIET)); } \
        static constexpr T signaling_NaN() { return mpsref::bits<T>(U(SIGNALING)); } \
        static constexpr T denorm_min() { return T(DENORM_MIN); } \
    };
MPSREF_LIMITS(float, FLT, 0x1p-149f, uint, 0x7fc00000, 0x7fa00000)
MPSREF_LIMITS(half, HALF, 0x1p-24f, ushort, 0x7e00, 0x7d00)
#if __METAL_VERSION__ >= 310
MPSREF_LIMITS(bfloat, BFLT, 0x1p-133f, ushort, 0x7fc0, 0x7fa0)
#endif
#undef MPSREF_LIMITS
#undef MPSREF_IS
#undef MPSREF_NUMBER

} // namespace metal
