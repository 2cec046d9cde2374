// Casts and braces in the running pass. The front end writes these in place of `static_cast<T>(x)`, `(T)x` and an
// argument `{a, b}`, since vectors of clang do not convert as those of MSL.
#pragma once

namespace mpsref {

template <bool C, class... T> struct only_if {};
template <class... T> struct only_if<true, T...> {
    typedef int is;
};
template <class T> using if_reference = typename only_if<__is_reference(T)>::is;
template <class T> using if_value = typename only_if<!__is_reference(T)>::is; // no reference binds to one of a vector

template <class T, class U> constexpr T convert(U x) {
    if constexpr (__is_class(U) && !shape<U>::is_vector)
        return (T)x;
    else if constexpr (shape<T>::is_vector || is_narrow<T>::value)
        return construct<T>(x);
    else
        return (T)x;
}
template <class T, class U, if_value<T> = 0> constexpr T cast(U x) { return convert<T>(x); }
template <class T, class U, if_reference<T> = 0> constexpr T cast(U &&x) { return static_cast<T>(static_cast<U &&>(x)); }

// castto<T>() ->* x has the precedence of a cast. A chain of them binds from the left: it is collected first.
template <class T, class... Then> struct castto {};
template <class T, class U, if_value<T> = 0> constexpr T operator->*(castto<T>, U x) { return convert<T>(x); }
template <class T, class U, if_reference<T> = 0> constexpr T operator->*(castto<T>, U &&x) { return (T)x; }
template <class T, class S, class... Then, class U> constexpr T operator->*(castto<T, S, Then...>, U x) {
    return castto<T>() ->* (castto<S, Then...>() ->* x);
}
template <class T, class... Then, class S>
constexpr castto<T, Then..., S> operator->*(castto<T, Then...>, castto<S>) {
    return {};
}

template <class T> struct type {
    typedef T is;
};
template <class T, bool = __is_class(T) || shape<T>::is_vector> struct if_composite {};
template <class T> struct if_composite<T, true> {
    typedef T is;
};

// {a, b} as an argument: becomes the vector or the object that the parameter is.
template <class Make> struct braced {
    Make make;
    template <class T, class = typename if_composite<T>::is> constexpr operator T() const { return make(type<T>()); }
};
template <class... A> constexpr auto braces(A... a) {
    auto make = [=](auto target) {
        typedef typename decltype(target)::is T;
        if constexpr (shape<T>::is_vector)
            return construct<T>(a...);
        else
            return T{a...};
    };
    return braced<decltype(make)>{make};
}

} // namespace mpsref
