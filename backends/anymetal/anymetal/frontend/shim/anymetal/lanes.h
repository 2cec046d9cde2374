// How a function of scalars becomes one of vectors: lane by lane, in one template for all of them and for bfloat, which
// any overload of a source comes before. Packed vectors and scalars among the arguments are converted.
#pragma once

namespace anymetal {

// The type of the result: that of the arguments that are no scalars.
template <class... A> struct composite_of {};
template <class A, class... Rest> struct composite_of<A, Rest...> : composite_of<Rest...> {};
template <class T, int N, class... Rest>
struct composite_of<T __attribute__((ext_vector_type(N))), Rest...> { typedef vector<T, N> type; };
template <class T, class... Rest> struct composite_of<packed3<T>, Rest...> { typedef vector<T, 3> type; };
#ifndef ANYMETAL_STRICT
template <class V, class... Rest> struct composite_of<anymetal_bools<V>, Rest...> { typedef anymetal_bools<V> type; };
#endif
template <> struct composite_of<bfloat> { typedef bfloat type; };
template <class V, class A>
constexpr constant bool fits = __is_same(V, typename shape<A>::whole) || (shape<V>::is_vector && is_number<A>);
template <class V, class... A> using fitting = enable<(fits<V, A> && ...), V>;
template <class... A> using composite = fitting<typename composite_of<A...>::type, A...>;
template <class V> using if_geometric = enable<shape<V>::is_vector && is_floating<element<V>>, V>;
template <class V> using floats = enable<is_floating<element<V>>, V>;
template <class V> using integers = enable<__is_integral(element<V>), V>;
template <class... A> using composite_vector = if_geometric<composite<A...>>;

// What one lane computes, and what it compares.
template <class V> struct computed { typedef element<V> type; };
template <> struct computed<bfloat> { typedef float type; };
template <class V> struct compared { typedef bool_vector<shape<V>::size> type; };
template <> struct compared<bfloat> { typedef bool type; };
template <class V> using truth = typename compared<V>::type;

template <class R, class T> inline void set(thread R &r, int i, T value) {
    if constexpr (shape<R>::is_vector)
        r[i] = value;
    else
        r = scalar<R>(value);
}

} // namespace anymetal

#define ANYMETAL_EACH(R, ...) \
    { \
        typedef typename anymetal::computed<V>::type T; \
        R r; \
        ANYMETAL_UNROLLED for (int i = 0; i < anymetal::shape<V>::size; i++) anymetal::set(r, i, __VA_ARGS__); \
        return r; \
    }
#define ANYMETAL_TEMPLATE_1(NAME, R) /* less special than a template of a source with one parameter: that is chosen */ \
    template <class A, class... None, class V = anymetal::composite<A>, anymetal::enable<sizeof...(None) == 0> = 0> \
    inline R NAME(A a, None...) ANYMETAL_EACH(R, NAME(anymetal::lane<T>(a, i)))
#define ANYMETAL_TEMPLATE_2(NAME, R) \
    template <class A, class B, class V = anymetal::composite<A, B>> inline R NAME(A a, B b) \
    ANYMETAL_EACH(R, NAME(anymetal::lane<T>(a, i), anymetal::lane<T>(b, i)))
#define ANYMETAL_TEMPLATE_3(NAME, R) \
    template <class A, class B, class C, class V = anymetal::composite<A, B, C>> inline R NAME(A a, B b, C c) \
    ANYMETAL_EACH(R, NAME(anymetal::lane<T>(a, i), anymetal::lane<T>(b, i), anymetal::lane<T>(c, i)))
