// Relational functions.
#pragma once

namespace metal {

// With fast math the first four of these are not to be relied on.
#define MPSREF_TEST(NAME, ...) \
    inline bool NAME(float a) { typedef float T; return __VA_ARGS__; } \
    inline bool NAME(half x) { typedef half T; const float a = x; return __VA_ARGS__; } \
    MPSREF_TEMPLATE_1(NAME, mpsref::truth<V>)
MPSREF_TEST(isfinite, __builtin_isfinite(a))
MPSREF_TEST(isinf, __builtin_isinf(a))
MPSREF_TEST(isnan, __builtin_isnan(a))
MPSREF_TEST(isnormal, __builtin_isfinite(a) && __builtin_fabsf(a) >= (sizeof(T) == 2 ? 0x1p-14f : 0x1p-126f))
MPSREF_TEST(signbit, mpsref::bits<uint>(a) >> 31 != 0)
#undef MPSREF_TEST
inline bool isunordered(float a, float b) { return isnan(a) || isnan(b); }
inline bool isunordered(half a, half b) { return isnan(a) || isnan(b); }
inline bool isordered(float a, float b) { return !isunordered(a, b); }
inline bool isordered(half a, half b) { return !isunordered(a, b); }
MPSREF_TEMPLATE_2(isunordered, mpsref::truth<V>)
MPSREF_TEMPLATE_2(isordered, mpsref::truth<V>)

inline bool any(bool a) { return a; }
inline bool all(bool a) { return a; }
template <class T, int N, class = mpsref::enable<__is_integral(T)>> inline bool any(vec<T, N> a) {
    bool is_any = false;
    MPSREF_UNROLLED for (int i = 0; i < N; i++) is_any |= a[i] != 0;
    return is_any;
}
template <class T, int N, class = mpsref::enable<__is_integral(T)>> inline bool all(vec<T, N> a) {
    bool are_all = true;
    MPSREF_UNROLLED for (int i = 0; i < N; i++) are_all &= a[i] != 0;
    return are_all;
}

template <class T, class = mpsref::enable<mpsref::is_number<T>>> inline T select(T a, T b, bool c) { return c ? b : a; }
template <class A, class B, class C, class V = mpsref::composite<A, B>, mpsref::enable<mpsref::shape<V>::is_vector> = 0>
inline V select(A a, B b, C c)
    MPSREF_EACH(V, mpsref::lane<bool>(c, i) ? mpsref::lane<T>(b, i) : mpsref::lane<T>(a, i))

#ifndef MPSREF_STRICT
#define MPSREF_OF_BUFFER(N) \
    inline bool any(mpsref::bool##N##_in_buffer a) { return any(bool##N(a)); } \
    inline bool all(mpsref::bool##N##_in_buffer a) { return all(bool##N(a)); }
MPSREF_OF_BUFFER(2) MPSREF_OF_BUFFER(3) MPSREF_OF_BUFFER(4)
#endif

} // namespace metal
