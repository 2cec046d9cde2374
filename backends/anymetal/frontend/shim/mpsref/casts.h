// Casts and braces in the running pass. The front end writes these in place of `static_cast<T>(x)`, `(T)x` and an
// argument `{a, b}`, since vectors of clang do not convert as those of MSL. No reference binds to a component of a
// vector: arguments are copied, but those of casts to references.
#pragma once

namespace mpsref {

template <class T, class U> constexpr T convert(U x) {
    if constexpr (!is_object<U> && (shape<T>::is_vector || is_narrow<T>))
        return construct<T>(x);
    else
        return (T)x;
}
template <class T, class U, enable<!__is_reference(T)> = 0> constexpr T cast(U x) { return convert<T>(x); }
template <class T, class U, enable<__is_reference(T)> = 0> constexpr T cast(U &&x) { return static_cast<T>((U &&)x); }

// castto<T>() ->* x has the precedence of a cast. A chain of them binds from the left: it is collected first.
template <class T, class... Then> struct castto {};
template <class T, class... Then, class U, enable<!__is_reference(T)> = 0>
constexpr T operator->*(castto<T, Then...>, U x) {
    if constexpr (sizeof...(Then) != 0)
        return convert<T>(castto<Then...>() ->* x);
    else
        return convert<T>(x);
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

} // namespace mpsref
