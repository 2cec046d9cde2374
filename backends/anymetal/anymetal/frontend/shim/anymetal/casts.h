// Casts and braces in the running pass. The front end writes these in place of `static_cast<T>(x)`, `(T)x` and an
// argument `{a, b}`, since vectors of clang do not convert as those of MSL. No reference binds to a component of a
// vector: arguments are copied, but those of casts to references.
#pragma once

namespace anymetal {

template <class T, class U> constexpr auto convert(U x) {
    if constexpr (shape<T>::is_vector || is_narrow<T>)
        return construct<T>(x);
    else
        return (T)x;
}
// The conversion of an object may depend on its address space.
template <class T, class U, enable<!__is_reference(T) && !is_object<U>> = 0> constexpr auto cast(U x) {
    return convert<T>(x);
}
template <class T, class U, enable<!__is_reference(T) && is_object_in_memory<U>> = 0> constexpr T cast(U &&x) {
    return (T)(U &&)x;
}
template <class T, class U, enable<__is_reference(T)> = 0> constexpr T cast(U &&x) { return static_cast<T>((U &&)x); }

// castto<T>() ->* x has the precedence of a cast. A chain of them binds from the left: it is collected first.
template <class T, class... Then> struct castto {};
template <class T, class... Then, class U, enable<!__is_reference(T) && !is_object<U>> = 0>
constexpr auto operator->*(castto<T, Then...>, U x) {
    if constexpr (sizeof...(Then) != 0)
        return cast<T>(castto<Then...>() ->* x);
    else
        return convert<T>(x);
}
template <class T, class... Then, class U, enable<!__is_reference(T) && is_object_in_memory<U>> = 0>
constexpr T operator->*(castto<T, Then...>, U &&x) {
    if constexpr (sizeof...(Then) != 0)
        return cast<T>(castto<Then...>() ->* (U &&)x);
    else
        return (T)(U &&)x;
}
template <class T, class U, enable<__is_reference(T)> = 0> constexpr T operator->*(castto<T>, U &&x) { return (T)x; }
template <class T, class... Then, class S> constexpr castto<T, Then..., S> operator->*(castto<T, Then...>, castto<S>) {
    return {};
}

// {a, b} as an argument: becomes the vector or the object that the parameter is.
template <class Make> struct braced {
    Make make;
    template <class T, enable<is_object<T> || shape<T>::is_vector> = 0> constexpr operator T() const {
        return make(shape<T>());
    }
};
template <class... A> constexpr auto braces(A... a) {
    auto make = [=](auto target) {
        typedef typename decltype(target)::whole T;
        if constexpr (shape<T>::is_vector)
            return construct<T>(a...);
        else
            return T{a...};
    };
    return braced<decltype(make)>{make};
}

// The compiler checks arithmetic of scalars only: `a + b` of vectors of integers becomes `a + each_lane() + b`, and `-a`
// becomes `minus() ->* a`. Vectors are not promoted: unsigned numbers of 8 and 16 bits wrap.
template <class A> constexpr A negated(A a) {
    const A result = -a;
    return result;
}
template <class E> constexpr constant bool wraps = sizeof(E) < sizeof(int) && E(-1) > E(0);
template <class E, class U> constexpr E wrapped(U value) {
    if constexpr (wraps<E>)
        return E(value);
    else
        return value;
}
template <class E> constexpr auto wide(E value) {
    if constexpr (wraps<E>)
        return uint(value);
    else
        return value;
}
struct each_lane {};
struct minus {
    template <class A> friend constexpr auto operator->*(minus, A a) {
        typedef typename shape<A>::whole R;
        if constexpr (shape<A>::is_vector && __is_integral(element<A>)) {
            R r{};
            ANYMETAL_UNROLLED for (int i = 0; i < shape<R>::size; i++)
                r[i] = wrapped<element<R>>(-wide(lane<element<R>>(a, i)));
            return r;
        } else {
            return -a;
        }
    }
};
template <class A> struct left {
    A value;
};
#define ANYMETAL_OPERATOR(SIGN) \
    template <class A> constexpr left<A> operator SIGN(A a, each_lane) { return {a}; } \
    template <class B> constexpr left<B> operator SIGN##=(each_lane, B b) { return {b}; } \
    template <class A, class B> constexpr auto operator SIGN(left<A> a, B b) { \
        typedef decltype(a.value SIGN b) R; \
        if constexpr (shape<R>::is_vector && __is_integral(element<R>)) { \
            R r{}; \
            ANYMETAL_UNROLLED for (int i = 0; i < shape<R>::size; i++) \
                r[i] = wrapped<element<R>>(wide(lane<element<R>>(a.value, i)) SIGN wide(lane<element<R>>(b, i))); \
            return r; \
        } else { \
            return a.value SIGN b; \
        } \
    } \
    template <class A, class B> constexpr A &operator SIGN##=(A &a, left<B> b) { \
        a = left<__typeof__(a SIGN b.value)>{a} SIGN b.value; \
        return a; \
    }
ANYMETAL_OPERATOR(+) ANYMETAL_OPERATOR(-) ANYMETAL_OPERATOR(*) ANYMETAL_OPERATOR(/) ANYMETAL_OPERATOR(%)
ANYMETAL_OPERATOR(<<) ANYMETAL_OPERATOR(>>)
#undef ANYMETAL_OPERATOR

template <class T> constexpr T &&lvalue(T &&x) { return (T &&)x; }

} // namespace anymetal

#ifdef ANYMETAL_CHECKED
#define ANYMETAL_LANES(SIGN) SIGN anymetal::each_lane() SIGN
#define ANYMETAL_MINUS anymetal::minus() ->*
#define ANYMETAL_LVALUE(...) anymetal::lvalue(__VA_ARGS__)
#else
#define ANYMETAL_LANES(SIGN) SIGN
#define ANYMETAL_MINUS -
#define ANYMETAL_LVALUE(...) (__VA_ARGS__)
#endif
