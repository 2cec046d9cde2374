// How a function of scalars becomes one of vectors: lane by lane, in one template for all of them and for bfloat. A
// function of a source is chosen before it. Packed vectors and scalars among the arguments are converted.
#pragma once

namespace mpsref {

// The type in which a function of vectors, or of bfloat, computes: that of the arguments that are no scalars.
template <class V, class A>
constexpr constant bool fits = __is_same(V, typename shape<A>::whole) || (shape<V>::is_vector && is_number<A>);
template <class... A> struct composite_of {};
template <class A, class... Rest> struct composite_of<A, Rest...> : composite_of<Rest...> {};
template <class T, int N, class... Rest> struct composite_of<T __attribute__((ext_vector_type(N))), Rest...> {
    typedef vector<T, N> type;
};
template <class T, class... Rest> struct composite_of<packed3<T>, Rest...> {
    typedef vector<T, 3> type;
};
#if __METAL_VERSION__ >= 310
template <> struct composite_of<bfloat> {
    typedef bfloat type;
};
#endif
template <bool, class T> struct only {};
template <class T> struct only<true, T> {
    typedef T type;
};
template <class... A>
using composite = typename only<(fits<typename composite_of<A...>::type, A> && ...), typename composite_of<A...>::type>::type;
template <bool C> using enable = typename only<C, void>::type;
template <class V> using element = typename shape<V>::element;
template <class... A>
using composite_vector = typename only<shape<composite<A...>>::is_vector && is_floating<element<composite<A...>>>, composite<A...>>::type;

// That in which one component is computed.
template <class V> struct computed {
    typedef typename shape<V>::element type;
};
#if __METAL_VERSION__ >= 310
template <> struct computed<bfloat> {
    typedef float type;
};
#endif

template <class R, class T> inline void set(thread R &r, int i, T value) {
    if constexpr (shape<R>::is_vector)
        r[i] = value;
    else
        r = scalar<R>(value);
}
#define MPSREF_EACH(R, ...) \
    { \
        typedef typename mpsref::computed<V>::type T; \
        R r; \
        for (int i = 0; i < mpsref::shape<V>::size; i++) mpsref::set(r, i, __VA_ARGS__); \
        return r; \
    }
#define MPSREF_TEMPLATE_1(NAME, R) \
    template <class A, class V = mpsref::composite<A>> inline R NAME(A a) MPSREF_EACH(R, NAME(mpsref::lane<T>(a, i)))
#define MPSREF_TEMPLATE_2(NAME, R) \
    template <class A, class B, class V = mpsref::composite<A, B>> \
    inline R NAME(A a, B b) MPSREF_EACH(R, NAME(mpsref::lane<T>(a, i), mpsref::lane<T>(b, i)))
#define MPSREF_TEMPLATE_3(NAME, R) \
    template <class A, class B, class C, class V = mpsref::composite<A, B, C>> \
    inline R NAME(A a, B b, C c) \
    MPSREF_EACH(R, NAME(mpsref::lane<T>(a, i), mpsref::lane<T>(b, i), mpsref::lane<T>(c, i)))

template <class V> struct truth_of {
    typedef vector<int, shape<V>::size> type;
};
#if __METAL_VERSION__ >= 310
template <> struct truth_of<bfloat> {
    typedef bool type;
};
#endif
template <class V> using truth = typename truth_of<V>::type; // of a comparison

} // namespace mpsref
