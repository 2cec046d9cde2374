// <metal_type_traits> and <metal_array>.
#pragma once

namespace metal {

template <class T, T V> struct integral_constant {
    static constexpr constant T value = V;
};
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;

template <bool C, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool C, class T = void> using enable_if_t = typename enable_if<C, T>::type;

template <bool C, class A, class B> struct conditional { typedef A type; };
template <class A, class B> struct conditional<false, A, B> { typedef B type; };
template <bool C, class A, class B> using conditional_t = typename conditional<C, A, B>::type;

template <class T> struct remove_const { typedef T type; };
template <class T> struct remove_const<const T> { typedef T type; };
template <class T> using remove_const_t = typename remove_const<T>::type;

template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};

template <class T> struct is_floating_point : false_type {};
template <> struct is_floating_point<float> : true_type {};
template <> struct is_floating_point<half> : true_type {};
#if __METAL_VERSION__ >= 310
template <> struct is_floating_point<bfloat> : true_type {};
#endif

template <class T> struct is_integral : false_type {};
template <> struct is_integral<bool> : true_type {};
#define MPSREF_INTEGRAL(T) template <> struct is_integral<T> : true_type {};
MPSREF_INTEGERS(MPSREF_INTEGRAL)
#undef MPSREF_INTEGRAL

template <class T> struct is_arithmetic : integral_constant<bool, is_integral<T>::value || is_floating_point<T>::value> {};
template <class T> struct is_scalar : is_arithmetic<T> {};
template <class T, bool = is_arithmetic<T>::value> struct is_signed : false_type {};
template <class T> struct is_signed<T, true> : integral_constant<bool, T(-1) < T(0)> {};
template <class T> struct is_unsigned : integral_constant<bool, is_arithmetic<T>::value && !is_signed<T>::value> {};

#define MPSREF_VALUE(NAME) template <class T> constexpr constant bool NAME##_v = NAME<T>::value;
MPSREF_VALUE(is_floating_point)
MPSREF_VALUE(is_integral)
MPSREF_VALUE(is_arithmetic)
MPSREF_VALUE(is_scalar)
MPSREF_VALUE(is_signed)
MPSREF_VALUE(is_unsigned)
#undef MPSREF_VALUE
template <class A, class B> constexpr constant bool is_same_v = is_same<A, B>::value;

template <class T> T declval();

template <class T, size_t N> struct array {
    T mpsref_elements[N];
    constexpr size_t size() const { return N; }
#ifdef MPSREF_STRICT
    constexpr size_t size() const __constant { return N; }
    thread T &operator[](size_t i) __private { return mpsref_elements[i]; }
    threadgroup T &operator[](size_t i) __local { return mpsref_elements[i]; }
    device T &operator[](size_t i) __global { return mpsref_elements[i]; }
    const thread T &operator[](size_t i) const __private { return mpsref_elements[i]; }
    const threadgroup T &operator[](size_t i) const __local { return mpsref_elements[i]; }
    const device T &operator[](size_t i) const __global { return mpsref_elements[i]; }
    const constant T &operator[](size_t i) const __constant { return mpsref_elements[i]; }
#else
    constexpr T &operator[](size_t i) { return mpsref_elements[i]; }
    constexpr const T &operator[](size_t i) const { return mpsref_elements[i]; }
#endif
};

} // namespace metal
