// Geometric functions of vectors.
#pragma once

namespace metal {

template <class A, class B, class V = anymetal::composite_vector<A, B>> inline anymetal::element<V> dot(A a, B b) {
    anymetal::element<V> sum = V(a)[0] * V(b)[0];
    ANYMETAL_UNROLLED for (int i = 1; i < anymetal::shape<V>::size; i++) sum += V(a)[i] * V(b)[i];
    return sum;
}
template <class A, class B, class V = anymetal::composite_vector<A, B>> inline V cross(A a, B b) {
    const V x = a, y = b;
    return x.yzx * y.zxy - x.zxy * y.yzx;
}
template <class A, class V = anymetal::composite_vector<A>> inline anymetal::element<V> length_squared(A a) {
    return dot(a, a);
}
template <class A, class V = anymetal::composite_vector<A>> inline anymetal::element<V> length(A a) {
    return sqrt(dot(a, a));
}
template <class A, class V = anymetal::composite_vector<A>> inline V normalize(A a) { return V(a) * rsqrt(dot(a, a)); }
template <class A, class B, class V = anymetal::composite_vector<A, B>>
inline anymetal::element<V> distance_squared(A a, B b) {
    return length_squared(V(a) - V(b));
}
template <class A, class B, class V = anymetal::composite_vector<A, B>> inline anymetal::element<V> distance(A a, B b) {
    return length(V(a) - V(b));
}
template <class A, class B, class V = anymetal::composite_vector<A, B>> inline V reflect(A incident, B normal) {
    typedef anymetal::element<V> T;
    return V(incident) - V(normal) * (dot(normal, incident) * T(2.0f));
}
template <class A, class B, class V = anymetal::composite_vector<A, B>>
inline V refract(A incident, B normal, anymetal::element<V> eta) {
    typedef anymetal::element<V> T;
    const T cosine = dot(normal, incident), k = T(1.0f) - eta * eta * (T(1.0f) - cosine * cosine);
    return k < T(0.0f) ? V(T(0.0f)) : V(incident) * eta - V(normal) * (eta * cosine + sqrt(k));
}
template <class A, class B, class C, class V = anymetal::composite_vector<A, B, C>>
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
