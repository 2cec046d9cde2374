// Relational functions.
#pragma once

namespace metal {

// With fast math the first four of these are not to be relied on.
#define ANYMETAL_TEST(NAME, ...) \
    inline bool NAME(float a) { typedef float T; return __VA_ARGS__; } \
    inline bool NAME(half x) { typedef half T; const float a = x; return __VA_ARGS__; } \
    ANYMETAL_TEMPLATE_1(NAME, anymetal::truth<V>)
ANYMETAL_TEST(isfinite, __builtin_isfinite(a))
ANYMETAL_TEST(isinf, __builtin_isinf(a))
ANYMETAL_TEST(isnan, __builtin_isnan(a))
ANYMETAL_TEST(isnormal, __builtin_isfinite(a) && __builtin_fabsf(a) >= (sizeof(T) == 2 ? 0x1p-14f : 0x1p-126f))
ANYMETAL_TEST(signbit, anymetal::bits<uint>(a) >> 31 != 0)
#undef ANYMETAL_TEST
inline bool isunordered(float a, float b) { return isnan(a) || isnan(b); }
inline bool isunordered(half a, half b) { return isnan(a) || isnan(b); }
inline bool isordered(float a, float b) { return !isunordered(a, b); }
inline bool isordered(half a, half b) { return !isunordered(a, b); }
ANYMETAL_TEMPLATE_2(isunordered, anymetal::truth<V>)
ANYMETAL_TEMPLATE_2(isordered, anymetal::truth<V>)

inline bool any(bool a) { return a; }
inline bool all(bool a) { return a; }
template <class T, int N, class = anymetal::enable<__is_integral(T)>> inline bool any(vec<T, N> a) {
    bool is_any = false;
    ANYMETAL_UNROLLED for (int i = 0; i < N; i++) is_any |= a[i] != 0;
    return is_any;
}
template <class T, int N, class = anymetal::enable<__is_integral(T)>> inline bool all(vec<T, N> a) {
    bool are_all = true;
    ANYMETAL_UNROLLED for (int i = 0; i < N; i++) are_all &= a[i] != 0;
    return are_all;
}

template <class T, class = anymetal::enable<anymetal::is_number<T>>> inline T select(T a, T b, bool c) { return c ? b : a; }
template <class A, class B, class C, class V = anymetal::composite<A, B>, anymetal::enable<anymetal::shape<V>::is_vector> = 0>
inline V select(A a, B b, C c)
    ANYMETAL_EACH(V, anymetal::lane<bool>(c, i) ? anymetal::lane<T>(b, i) : anymetal::lane<T>(a, i))

#ifndef ANYMETAL_STRICT
template <class V> inline bool any(anymetal_bools<V> a) { return any(anymetal::zero_or_one(a)); }
template <class V> inline bool all(anymetal_bools<V> a) { return all(anymetal::zero_or_one(a)); }
#endif

} // namespace metal
