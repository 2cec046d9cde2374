// Relational and geometric functions.
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
    for (int i = 0; i < N; i++) is_any |= a[i] != 0;
    return is_any;
}
template <class T, int N, class = mpsref::enable<__is_integral(T)>> inline bool all(vec<T, N> a) {
    bool are_all = true;
    for (int i = 0; i < N; i++) are_all &= a[i] != 0;
    return are_all;
}

template <class T, class = mpsref::enable<mpsref::is_number<T>>> inline T select(T a, T b, bool c) { return c ? b : a; }
template <class A, class B, class C, class V = mpsref::composite<A, B>, class = mpsref::enable<mpsref::shape<V>::is_vector>>
inline V select(A a, B b, C c)
    MPSREF_EACH(V, mpsref::lane<bool>(c, i) ? mpsref::lane<T>(b, i) : mpsref::lane<T>(a, i))

template <class A, class B, class V = mpsref::composite_vector<A, B>> inline mpsref::element<V> dot(A a, B b) {
    mpsref::element<V> sum = V(a)[0] * V(b)[0];
    for (int i = 1; i < mpsref::shape<V>::size; i++) sum += V(a)[i] * V(b)[i];
    return sum;
}
template <class A, class B, class V = mpsref::composite_vector<A, B>> inline V cross(A a, B b) {
    const V x = a, y = b;
    return x.yzx * y.zxy - x.zxy * y.yzx;
}
template <class A, class V = mpsref::composite_vector<A>> inline mpsref::element<V> length_squared(A a) {
    return dot(a, a);
}
template <class A, class V = mpsref::composite_vector<A>> inline mpsref::element<V> length(A a) { return sqrt(dot(a, a)); }
template <class A, class V = mpsref::composite_vector<A>> inline V normalize(A a) { return V(a) * rsqrt(dot(a, a)); }
template <class A, class B, class V = mpsref::composite_vector<A, B>>
inline mpsref::element<V> distance_squared(A a, B b) {
    return length_squared(V(a) - V(b));
}
template <class A, class B, class V = mpsref::composite_vector<A, B>> inline mpsref::element<V> distance(A a, B b) {
    return length(V(a) - V(b));
}
template <class A, class B, class V = mpsref::composite_vector<A, B>> inline V reflect(A incident, B normal) {
    typedef mpsref::element<V> T;
    return V(incident) - V(normal) * (dot(normal, incident) * T(2.0f));
}
template <class A, class B, class V = mpsref::composite_vector<A, B>>
inline V refract(A incident, B normal, mpsref::element<V> eta) {
    typedef mpsref::element<V> T;
    const T cosine = dot(normal, incident), k = T(1.0f) - eta * eta * (T(1.0f) - cosine * cosine);
    return k < T(0.0f) ? V(T(0.0f)) : V(incident) * eta - V(normal) * (eta * cosine + sqrt(k));
}
template <class A, class B, class C, class V = mpsref::composite_vector<A, B, C>>
inline V faceforward(A normal, B incident, C reference) {
    return dot(reference, incident) < 0 ? V(normal) : -V(normal);
}
namespace fast {
using metal::distance; using metal::length; using metal::normalize;
}
namespace precise {
using metal::distance; using metal::length; using metal::normalize;
}

} // namespace metal
