// Casts and braces in the running pass. The front end writes these in place of `static_cast<T>(x)`, `(T)x` and an
// argument `{a, b}`, since vectors of clang do not convert as those of MSL.
#pragma once

namespace mpsref {

template <class T, class U> constexpr T cast(U x) { // no reference: components of vectors have none
    constexpr bool is_value = shape<T>::is_vector || is_narrow<T>::value;
    if constexpr (__is_class(T) && !shape<T>::is_vector || __is_class(U) && !is_value)
        return static_cast<T>(x);
    else if constexpr (is_value)
        return construct<T>(x);
    else
        return (T)x;
}

// castto<T>() ->* x has the precedence of a cast. A chain of them binds from the left: it is collected first.
template <class T, class... Then> struct castto {};
template <class T, class... Then, class U> constexpr T operator->*(castto<T, Then...>, U x) {
    if constexpr (sizeof...(Then) != 0)
        return castto<T>() ->* (castto<Then...>() ->* x);
    else if constexpr (shape<T>::is_vector || is_narrow<T>::value)
        return construct<T>(x);
    else
        return (T)x;
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
