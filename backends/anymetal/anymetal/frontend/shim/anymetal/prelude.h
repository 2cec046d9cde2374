// What MSL knows before any include: the qualifiers, the scalar, vector and packed types, and their constructors.
//
// Read by two passes. The strict pass (ANYMETAL_STRICT) is C++ for OpenCL, whose address spaces are those of Metal; it
// only checks. The running pass is C++ in clang's SYCL device mode for the processor, or for an NVIDIA GPU
// (ANYMETAL_CUDA). Its address spaces are types as well: templates and overloads see them. All of them convert to the
// default one, so structs can be copied and members called.
#pragma once

#ifdef ANYMETAL_STRICT
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#if __METAL_VERSION__ >= 310
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
#endif
#define kernel __kernel
#define device __global
#define constant __constant
#define threadgroup __local
#define thread __private
#define global anymetal_name_global // words that OpenCL reserves and MSL does not
#define local anymetal_name_local
#define generic anymetal_name_generic
#define pipe anymetal_name_pipe
#define read_only anymetal_name_read_only
#define write_only anymetal_name_write_only
#define read_write anymetal_name_read_write
#else
#define device __attribute__((opencl_global))
#define constant __attribute__((opencl_global_host)) const
#define threadgroup __attribute__((opencl_local))
#define thread
#endif
#if __METAL_VERSION__ >= 320 // a cache that other threads do not see is none here
#define coherent
#else
#define coherent(...)
#endif

#ifdef ANYMETAL_CUDA
#define ANYMETAL_LARGE
#else
#define ANYMETAL_LARGE __attribute__((optnone, noinline, no_sanitize("coverage")))
#endif

// A loop over components: -O1 alone unrolls none.
#define ANYMETAL_UNROLLED _Pragma("clang loop unroll(full)")
// A function that accesses memory on behalf of a kernel, beside its arguments: checks name the line of its caller.
#ifdef ANYMETAL_CHECKED
#define ANYMETAL_TOUCHES __attribute__((always_inline)) inline
#define ANYMETAL_UNCHECKED __attribute__((no_sanitize("thread"), noinline))
#define ANYMETAL_UNTOLD __attribute__((address_space(1))) // memory with accesses that the sanitizer leaves alone
#else
#define ANYMETAL_TOUCHES inline
#define ANYMETAL_UNCHECKED inline
#define ANYMETAL_UNTOLD
#endif

// A value of a function whose result is undefined unless a condition holds.
#if defined(ANYMETAL_CHECKED) && !defined(ANYMETAL_STRICT)
extern "C" void anymetal_argument(const char *call);
#define ANYMETAL_NEEDS(CONDITION, CALL, ...) ((CONDITION) ? void() : anymetal_argument(CALL), __VA_ARGS__)
#else
#define ANYMETAL_NEEDS(CONDITION, CALL, ...) (__VA_ARGS__)
#endif

typedef char int8_t;
typedef unsigned char uchar, uint8_t;
typedef short int16_t;
typedef unsigned short ushort, uint16_t;
typedef int int32_t;
typedef unsigned int uint, uint32_t;
typedef long int64_t, ptrdiff_t, intptr_t;
typedef unsigned long ulong, uint64_t, size_t, uintptr_t;

namespace anymetal {
#ifdef ANYMETAL_STRICT
typedef _Float16 bfloat; // a type of its own with the arithmetic of half, which this pass has: it never runs it
#else
typedef __bf16 bfloat;
#endif
} // namespace anymetal

// C++ reserves the suffixes H, bf and BF: the front end writes _H, _bf and _BF.
#ifndef ANYMETAL_STRICT
typedef _Float16 half;
constexpr half operator""h(long double x) { return half(x); }
constexpr half operator""_H(long double x) { return half(x); }
#endif
#if __METAL_VERSION__ >= 310
typedef anymetal::bfloat bfloat;
#ifndef ANYMETAL_STRICT
constexpr bfloat operator""_bf(long double x) { return bfloat(x); }
constexpr bfloat operator""_BF(long double x) { return bfloat(x); }
#endif
#define ANYMETAL_BFLOAT(M) M(bfloat)
#else
#define ANYMETAL_BFLOAT(M)
#endif
#define ANYMETAL_INTEGERS(M) M(char) M(uchar) M(short) M(ushort) M(int) M(uint) M(long) M(ulong)
#define ANYMETAL_NUMBERS(M) ANYMETAL_INTEGERS(M) M(half) M(float) ANYMETAL_BFLOAT(M)

// In the strict pass a member has one `this` for each address space that its result is in.
#ifdef ANYMETAL_STRICT
#define ANYMETAL_ACCESS(RESULT, NAME, VALUE, ...) \
    thread RESULT NAME(__VA_ARGS__) __private { return VALUE; } \
    threadgroup RESULT NAME(__VA_ARGS__) __local { return VALUE; } \
    device RESULT NAME(__VA_ARGS__) __global { return VALUE; } \
    const thread RESULT NAME(__VA_ARGS__) const __private { return VALUE; } \
    const threadgroup RESULT NAME(__VA_ARGS__) const __local { return VALUE; } \
    const device RESULT NAME(__VA_ARGS__) const __global { return VALUE; } \
    constant RESULT NAME(__VA_ARGS__) const __constant { return (constant RESULT)(VALUE); }
#define ANYMETAL_CONST(MEMBER, ...) MEMBER const __VA_ARGS__ MEMBER const __constant __VA_ARGS__
#define ANYMETAL_OF_CONSTANT __constant
#define ANYMETAL_OF_THREAD __private
#else
#if __cplusplus > 202002L // the result is in the address space of the object
#define ANYMETAL_ACCESS(RESULT, NAME, VALUE, ...) \
    constexpr auto NAME(this auto &&self __VA_OPT__(, ) __VA_ARGS__)->decltype(VALUE) { return VALUE; }
#define ANYMETAL_SELF self
#else
#define ANYMETAL_ACCESS(RESULT, NAME, VALUE, ...) \
    constexpr RESULT NAME(__VA_ARGS__) { return VALUE; } \
    constexpr const RESULT NAME(__VA_ARGS__) const { return VALUE; }
#endif
#define ANYMETAL_CONST(MEMBER, ...) MEMBER const __VA_ARGS__
#define ANYMETAL_OF_CONSTANT
#define ANYMETAL_OF_THREAD
#endif
#ifndef ANYMETAL_SELF
#define ANYMETAL_SELF (*this)
#endif
#define ANYMETAL_SUBSCRIPT(TYPE, INDEX, ELEMENT) ANYMETAL_ACCESS(TYPE &, operator[], ELEMENT, INDEX i)

#define ANYMETAL_VECTOR(ELEMENT, NAME) \
    typedef ELEMENT NAME##2 __attribute__((ext_vector_type(2))); \
    typedef ELEMENT NAME##3 __attribute__((ext_vector_type(3))); \
    typedef ELEMENT NAME##4 __attribute__((ext_vector_type(4)));
#define ANYMETAL_VECTORS(T) ANYMETAL_VECTOR(T, T)
ANYMETAL_NUMBERS(ANYMETAL_VECTORS)

namespace anymetal {

#ifdef ANYMETAL_STRICT
// A variable in threadgroup memory, for a function that may have none.
template <class T> using same = T;
template <class T> threadgroup T &somewhere();
#define ANYMETAL_SHARED(NAME, ...) threadgroup anymetal::same<__VA_ARGS__> &NAME = anymetal::somewhere<__VA_ARGS__>()
#endif

template <bool, class T> struct only {};
template <class T> struct only<true, T> { typedef T type; };
template <bool C, class T = int> using enable = typename only<C, T>::type;

template <class T, int N> using vector = T __attribute__((ext_vector_type(N)));
template <class T> struct shape;
} // namespace anymetal

#ifdef ANYMETAL_STRICT
ANYMETAL_VECTOR(int, bool)
#else
// A vector of bool has bytes. clang's comparisons of vectors have vectors of integers, -1 for true: those convert to it.
#define ANYMETAL_BOOL_OPERATOR(SIGN) \
    friend constexpr anymetal_bools operator SIGN(anymetal_bools a, anymetal_bools b) { \
        ANYMETAL_UNROLLED for (int i = 0; i < N; i++) a[i] = a[i] SIGN b[i]; \
        return a; \
    }
#define ANYMETAL_BOOL_ASSIGNMENT(SIGN) \
    ANYMETAL_BOOL_OPERATOR(SIGN) \
    constexpr anymetal_bools &operator SIGN##=(anymetal_bools b) { return *this = *this SIGN b; }
#define ANYMETAL_BOOL_PART(NAME, ...) \
    constexpr part<__VA_ARGS__> anymetal_get_##NAME() const { return get<__VA_ARGS__>(); } \
    constexpr void anymetal_put_##NAME(part<__VA_ARGS__> v) { put<__VA_ARGS__>(v); } \
    __declspec(property(get = anymetal_get_##NAME, put = anymetal_put_##NAME)) part<__VA_ARGS__> NAME;
#define ANYMETAL_BOOL_PAIRS(A, I, X, Y, Z, W) \
    ANYMETAL_BOOL_PART(A, I) ANYMETAL_BOOL_PART(A##X, I, 0) ANYMETAL_BOOL_PART(A##Y, I, 1) \
    ANYMETAL_BOOL_PART(A##Z, I, 2) ANYMETAL_BOOL_PART(A##W, I, 3)
#define ANYMETAL_BOOL_PARTS(X, Y, Z, W) \
    ANYMETAL_BOOL_PAIRS(X, 0, X, Y, Z, W) ANYMETAL_BOOL_PAIRS(Y, 1, X, Y, Z, W) ANYMETAL_BOOL_PAIRS(Z, 2, X, Y, Z, W) \
    ANYMETAL_BOOL_PAIRS(W, 3, X, Y, Z, W) ANYMETAL_BOOL_PART(X##Y##Z, 0, 1, 2) ANYMETAL_BOOL_PART(Y##Z##W, 1, 2, 3) \
    ANYMETAL_BOOL_PART(X##Y##W, 0, 1, 3) ANYMETAL_BOOL_PART(X##Z##W, 0, 2, 3) ANYMETAL_BOOL_PART(Z##Y##X, 2, 1, 0) \
    ANYMETAL_BOOL_PART(X##X##X, 0, 0, 0) ANYMETAL_BOOL_PART(X##X##X##X, 0, 0, 0, 0) \
    ANYMETAL_BOOL_PART(X##Y##Z##W, 0, 1, 2, 3) ANYMETAL_BOOL_PART(W##Z##Y##X, 3, 2, 1, 0)
template <class V> struct anymetal_bools;
template <int... I> struct anymetal_part { typedef anymetal_bools<anymetal::vector<bool, sizeof...(I)>> type; };
template <int I> struct anymetal_part<I> { typedef bool type; };
template <int N> struct alignas(N == 3 ? 4 : N) anymetal_bools<bool __attribute__((ext_vector_type(N)))> {
    template <int... I> using part = typename anymetal_part<I...>::type;
    bool anymetal_all[N];
    anymetal_bools() = default;
    template <class... B, class = anymetal::enable<sizeof...(B) == N>>
    constexpr anymetal_bools(B... b) : anymetal_all{bool(b)...} {}
    constexpr anymetal_bools(bool v) : anymetal_all{} { ANYMETAL_UNROLLED for (int i = 0; i < N; i++) anymetal_all[i] = v; }
    template <class T> constexpr anymetal_bools(T __attribute__((ext_vector_type(N))) v) : anymetal_all{} {
        ANYMETAL_UNROLLED for (int i = 0; i < N; i++) anymetal_all[i] = v[i] != 0;
    }
    constexpr bool &operator[](int i) { return anymetal_all[i]; }
    constexpr bool operator[](int i) const { return anymetal_all[i]; }
    friend constexpr anymetal_bools operator!(anymetal_bools a) { return a == anymetal_bools(false); }
    ANYMETAL_BOOL_ASSIGNMENT(&) ANYMETAL_BOOL_ASSIGNMENT(|) ANYMETAL_BOOL_ASSIGNMENT(^)
    ANYMETAL_BOOL_OPERATOR(&&) ANYMETAL_BOOL_OPERATOR(||) ANYMETAL_BOOL_OPERATOR(==) ANYMETAL_BOOL_OPERATOR(!=)
    template <int... I> constexpr part<I...> get() const {
        static_assert(((I < N) && ...), "a vector of bool has no such component");
        return {anymetal_all[I]...};
    }
    template <int... I> constexpr void put(part<I...> v) {
        static_assert(((I < N) && ...), "a vector of bool has no such component");
        if constexpr (sizeof...(I) == 1) {
            ((anymetal_all[I] = v), ...);
        } else {
            int i = 0;
            ((anymetal_all[I] = v[i++]), ...);
        }
    }
    ANYMETAL_BOOL_PARTS(x, y, z, w) ANYMETAL_BOOL_PARTS(r, g, b, a)
};
typedef anymetal_part<0, 1>::type bool2;
typedef anymetal_part<0, 1, 2>::type bool3;
typedef anymetal_part<0, 1, 2, 3>::type bool4;
#endif

namespace anymetal {

// The vector that a name of `vec<T, N>` stands for, which may be one of bool. It cannot be deduced.
template <class V> struct storable { typedef V type; };
#ifdef ANYMETAL_STRICT
template <int N> using bool_vector = vector<int, N>;
#else
template <int N> using bool_vector = anymetal_bools<vector<bool, N>>;
template <int N> struct storable<vector<bool, N>> { typedef bool_vector<N> type; };
#endif

// A vector of three without padding. Vectors of two and four have none: packed ones are less aligned.
template <class T> struct packed3 {
    typedef vector<T, 3> vec;
    T x, y, z;
    packed3() = default;
    constexpr packed3(T all) : x(all), y(all), z(all) {}
    constexpr packed3(T a, T b, T c) : x(a), y(b), z(c) {}
    constexpr packed3(vec v) : x(v.x), y(v.y), z(v.z) {}
    ANYMETAL_CONST(constexpr operator vec(), { return vec{x, y, z}; })
    ANYMETAL_SUBSCRIPT(T, uint, (&ANYMETAL_SELF.x)[i])
#define ANYMETAL_OPERATOR(SIGN) \
    friend constexpr vec operator SIGN(packed3 a, packed3 b) { return vec(a) SIGN vec(b); } \
    friend constexpr vec operator SIGN(packed3 a, vec b) { return vec(a) SIGN b; } \
    friend constexpr vec operator SIGN(vec a, packed3 b) { return a SIGN vec(b); } \
    packed3 &operator SIGN##=(packed3 b) { return *this = packed3(*this SIGN b); }
    ANYMETAL_OPERATOR(+) ANYMETAL_OPERATOR(-) ANYMETAL_OPERATOR(*) ANYMETAL_OPERATOR(/)
    friend constexpr vec operator-(packed3 a) { return -vec(a); }
};

// The components of a type; `whole` is the vector that it converts to.
template <class T> struct shape {
    typedef T element, whole;
    enum { size = 1, is_vector = 0 };
};
template <class T, int N> struct shape<T __attribute__((ext_vector_type(N)))> {
    typedef T element;
    typedef vector<T, N> whole;
    enum { size = N, is_vector = 1 };
};
template <class T> struct shape<packed3<T>> : shape<vector<T, 3>> {};
template <class T> constexpr constant bool is_bools = false;
#ifndef ANYMETAL_STRICT
template <int N> struct shape<anymetal_bools<bool __attribute__((ext_vector_type(N)))>> {
    typedef bool element;
    typedef bool_vector<N> whole;
    enum { size = N, is_vector = 1 };
};
template <class V> constexpr constant bool is_bools<anymetal_bools<V>> = true;
#endif
template <class T> struct shape<const T> : shape<T> {};
template <class T> struct shape<volatile T> : shape<T> {};
template <class T> using element = typename shape<T>::element;

template <class T> constexpr constant bool is_narrow = __is_same(T, half) || __is_same(T, bfloat);
template <class T> constexpr constant bool is_floating = __is_same(T, float) || is_narrow<T>;
template <class T> constexpr constant bool is_number = __is_integral(T) || is_floating<T>;
template <class T> constexpr constant bool is_object = __is_class(T) && !shape<T>::is_vector;
// The same of the type of an argument with its address space.
template <class T> constexpr constant bool is_object_in_memory = is_object<T>;
template <class T> constexpr constant bool is_object_in_memory<T &> = is_object_in_memory<T>;
template <class T> constexpr constant bool is_object_in_memory<const T> = is_object_in_memory<T>;
#define ANYMETAL_IN(SPACE) \
    template <class T> constexpr constant bool is_object_in_memory<SPACE T> = is_object<T>; \
    template <class T> constexpr constant bool is_object_in_memory<const SPACE T> = is_object<T>;
ANYMETAL_IN(device) ANYMETAL_IN(threadgroup)
#ifdef ANYMETAL_STRICT
ANYMETAL_IN(constant) ANYMETAL_IN(thread) ANYMETAL_IN(__generic)
#else
template <class T> constexpr constant bool is_object_in_memory<constant T> = is_object<T>;
#endif
#undef ANYMETAL_IN

#ifdef ANYMETAL_CHECKED
extern "C" void anymetal_half_index(float value); // abi.h
#define ANYMETAL_HALF_INDEX(X) \
    if constexpr (__is_same(U, half) && __is_integral(T) && sizeof(T) > 1 && !__is_same(T, bool)) \
        if (!__builtin_is_constant_evaluated() && !(float(X) < 2048 && float(X) > -2048)) anymetal_half_index(float(X));
#else
#define ANYMETAL_HALF_INDEX(X)
#endif

// half and bfloat do not convert to each other.
template <class T, class U> constexpr T scalar(U x) {
    ANYMETAL_HALF_INDEX(x)
    if constexpr (is_narrow<T> && is_narrow<U> && !__is_same(T, U))
        return T(float(x));
    else
        return T(x);
}

// Component i of a vector; a scalar has the same one everywhere.
template <class T, class A> constexpr T lane(A a, int i) {
    if constexpr (shape<A>::is_vector)
        return scalar<T>(a[i]);
    else
        return scalar<T>(a);
}

// Comparisons of vectors as numbers: 0 and 1. Scalars, and what only looks like a comparison, are as they are.
template <class A> constexpr auto zero_or_one(A a) {
    if constexpr (is_bools<A>) {
        vector<int, shape<A>::size> numbers{};
        ANYMETAL_UNROLLED for (int i = 0; i < shape<A>::size; i++) numbers[i] = a[i];
        return numbers;
    } else if constexpr (shape<A>::is_vector && __is_integral(element<A>)) {
        return (typename shape<A>::whole)a & 1;
    } else {
        return a;
    }
}

#ifndef ANYMETAL_STRICT
// A comparison of vectors as a vector of bool.
template <class A> constexpr auto bools(A a) {
    if constexpr (shape<A>::is_vector && __is_integral(element<A>))
        return bool_vector<shape<A>::size>((typename shape<A>::whole)a);
    else
        return a;
}
#endif

// A component of a comparison of vectors.
template <class A> constexpr auto bool_component(A a) {
    if constexpr (__is_integral(A))
        return a != 0;
    else
        return a;
}

template <class V, class A> constexpr void append(thread V &v, thread int &at, A part) {
    ANYMETAL_UNROLLED for (int i = 0; i < shape<A>::size; i++) v[at++] = lane<element<V>>(part, i);
}

// float4(a, b.xyz), float4(0), float4(int4), T(x), T(a, b), ...: a vector from parts, from one scalar, or by
// conversion; a scalar or an object of a class.
template <class V> constexpr V construct() { return V{}; }
template <class V, class A, enable<is_object_in_memory<A>> = 0> constexpr V construct(A &&a) { return V((A &&)a); }
template <class V, class A, enable<!is_object<A>> = 0> constexpr V construct(A a) {
    typedef typename shape<V>::whole whole;
    if constexpr (!shape<V>::is_vector || is_object<A>) {
        return scalar<V>(a);
    } else if constexpr (is_bools<V> && !is_bools<A>) {
        return V((typename shape<A>::whole)a);
    } else if constexpr (is_bools<A> && !is_bools<V>) {
        return construct<V>(zero_or_one(a));
    } else if constexpr (__is_same(whole, typename shape<A>::whole)) {
        return a;
    } else if constexpr (!shape<A>::is_vector) {
        return whole(scalar<element<V>>(a));
    } else if constexpr (is_narrow<element<V>> && is_narrow<element<A>> && !__is_same(element<V>, element<A>)) {
        return construct<V>(construct<vector<float, shape<A>::size>>(a));
    } else {
        static_assert(int(shape<A>::size) == int(shape<V>::size), "a vector is converted from one of the same size");
#ifdef ANYMETAL_CHECKED // of each component whether it is in range
        if constexpr (is_floating<element<A>> && __is_integral(element<V>)) {
            V v{};
            ANYMETAL_UNROLLED for (int i = 0; i < shape<V>::size; i++) v[i] = lane<element<V>>(a, i);
            return v;
        }
#endif
        return __builtin_convertvector((typename shape<A>::whole)a, whole);
    }
}
// An object among the parts of a vector, in its address space, is converted first.
template <class V, class P> constexpr auto number_of(const P &part) {
    if constexpr (is_object_in_memory<P>)
        return element<V>(part);
    else
        return part;
}
template <class V, class... P> constexpr constant bool has_objects = shape<V>::is_vector && (is_object_in_memory<P> || ...);
template <class V, class A, class B, class... Parts, enable<!has_objects<V, A, B, Parts...>> = 0>
constexpr V construct(A a, B b, Parts... parts) {
    if constexpr (shape<V>::is_vector) {
        // Too few are no error of Apple's compiler, against the specification: shipped libraries have float4(float2, 0).
        static_assert((int(shape<A>::size + shape<B>::size) + ... + int(shape<Parts>::size)) <= int(shape<V>::size),
                      "a vector is built from at most as many components as it has");
        V v{};
        int at = 0;
        append(v, at, a);
        append(v, at, b);
        (append(v, at, parts), ...);
        return v;
    } else if constexpr (__is_constructible(V, A, B, Parts...)) {
        return V(a, b, parts...);
    } else {
        return V{a, b, parts...};
    }
}

template <class V, class A, class B, class... Parts, enable<has_objects<V, A, B, Parts...>> = 0>
constexpr V construct(const A &a, const B &b, const Parts &...parts) {
    return construct<V>(number_of<V>(a), number_of<V>(b), number_of<V>(parts)...);
}

template <class To, class From> constexpr To bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "as_type needs two types of the same size");
    if constexpr (__is_same(From, bfloat) && !__is_same(bfloat, half)) // clang 22 loses the sign, if nothing else is used
        return __builtin_bit_cast(To, ushort(__builtin_bit_cast(uint, float(value)) >> 16));
    return __builtin_bit_cast(To, value);
}

// A number as an integer with the same bits.
template <class T> constexpr auto integer(T x) {
    if constexpr (!is_floating<T>)
        return x;
    else if constexpr (sizeof(T) == sizeof(uint))
        return bits<uint>(x);
    else
        return bits<ushort>(x);
}

} // namespace anymetal

#define ANYMETAL_PACKED(T) \
    typedef T packed_##T##2 __attribute__((ext_vector_type(2), aligned(sizeof(T)))); \
    typedef anymetal::packed3<T> packed_##T##3; \
    static_assert(sizeof(packed_##T##3) == 3 * sizeof(T)); /* parameters of kernels are of complete types */ \
    typedef T packed_##T##4 __attribute__((ext_vector_type(4), aligned(sizeof(T))));
ANYMETAL_NUMBERS(ANYMETAL_PACKED)

#ifndef ANYMETAL_STRICT
#include "casts.h"
#endif
