// What MSL knows before any include: the qualifiers, the scalar, vector and packed types, and their constructors.
//
// Read by two passes. The strict pass (MPSREF_STRICT) is C++ for OpenCL, whose address spaces are those of Metal; it
// only checks. The running pass is C++ in clang's SYCL device mode for the processor, or for an NVIDIA GPU
// (MPSREF_CUDA). Its address spaces are types as well: templates and overloads see them. All of them convert to the
// default one, so structs can be copied and members called.
#pragma once

#ifdef MPSREF_STRICT
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#if __METAL_VERSION__ >= 310
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
#endif
#define kernel __kernel
#define device __global
#define constant __constant
#define threadgroup __local
#define thread __private
#define global mpsref_name_global // words that OpenCL reserves and MSL does not
#define local mpsref_name_local
#define generic mpsref_name_generic
#define pipe mpsref_name_pipe
#define read_only mpsref_name_read_only
#define write_only mpsref_name_write_only
#define read_write mpsref_name_read_write
#else
#define device __attribute__((opencl_global))
#define constant __attribute__((opencl_global_host)) const
#define threadgroup __attribute__((opencl_local))
#define thread
#endif


#define coherent(...) // a cache that other threads do not see is none here

// A function that accesses memory on behalf of a kernel, beside its arguments.
#define MPSREF_TOUCHES inline

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;

#ifndef MPSREF_STRICT // which has half and its literals
typedef _Float16 half;
constexpr half operator""h(long double x) { return half(x); }
constexpr half operator""_h(long double x) { return half(x); } // C++ reserves H, bf and BF: the front end writes _H ...
constexpr half operator""_H(long double x) { return half(x); }
#endif
#if __METAL_VERSION__ >= 310
#ifdef MPSREF_STRICT
typedef _Float16 bfloat; // a type of its own with the arithmetic of half: this pass never runs it
#else
typedef __bf16 bfloat;
constexpr bfloat operator""_bf(long double x) { return bfloat(x); }
constexpr bfloat operator""_BF(long double x) { return bfloat(x); }
#endif
#define MPSREF_BFLOAT(M) M(bfloat)
#else
#define MPSREF_BFLOAT(M)
#endif
#define MPSREF_INTEGERS(M) M(char) M(uchar) M(short) M(ushort) M(int) M(uint) M(long) M(ulong)
#define MPSREF_NUMBERS(M) MPSREF_INTEGERS(M) M(half) M(float) MPSREF_BFLOAT(M)

// In the strict pass a member has one `this` for each address space that its result is in.
#ifdef MPSREF_STRICT
#define MPSREF_SUBSCRIPT(TYPE, INDEX, ELEMENT) \
    thread TYPE &operator[](INDEX i) __private { return ELEMENT; } \
    threadgroup TYPE &operator[](INDEX i) __local { return ELEMENT; } \
    device TYPE &operator[](INDEX i) __global { return ELEMENT; } \
    const thread TYPE &operator[](INDEX i) const __private { return ELEMENT; } \
    const threadgroup TYPE &operator[](INDEX i) const __local { return ELEMENT; } \
    const device TYPE &operator[](INDEX i) const __global { return ELEMENT; } \
    const constant TYPE &operator[](INDEX i) const __constant { return ELEMENT; }
#else
#define MPSREF_SUBSCRIPT(TYPE, INDEX, ELEMENT) \
    constexpr TYPE &operator[](INDEX i) { return ELEMENT; } \
    constexpr const TYPE &operator[](INDEX i) const { return ELEMENT; }
#endif

#define MPSREF_VECTOR(ELEMENT, NAME) \
    typedef ELEMENT NAME##2 __attribute__((ext_vector_type(2))); \
    typedef ELEMENT NAME##3 __attribute__((ext_vector_type(3))); \
    typedef ELEMENT NAME##4 __attribute__((ext_vector_type(4)));
#define MPSREF_VECTORS(T) MPSREF_VECTOR(T, T)
MPSREF_NUMBERS(MPSREF_VECTORS)
MPSREF_VECTOR(int, bool) // a comparison of vectors gives integers here: 0, and anything else for true
#undef MPSREF_VECTORS
#undef MPSREF_VECTOR

namespace mpsref {

template <class T, int N> using vector = T __attribute__((ext_vector_type(N)));

// A vector of three without padding. Vectors of two and four have none: packed ones are less aligned.
template <class T> struct packed3 {
    T x, y, z;
    packed3() = default;
    constexpr packed3(T all) : x(all), y(all), z(all) {}
    constexpr packed3(T a, T b, T c) : x(a), y(b), z(c) {}
    constexpr packed3(vector<T, 3> v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator vector<T, 3>() const { return vector<T, 3>{x, y, z}; }
#ifdef MPSREF_STRICT
    constexpr operator vector<T, 3>() const __constant { return vector<T, 3>{x, y, z}; }
#endif
    MPSREF_SUBSCRIPT(T, uint, (&x)[i])
#define MPSREF_OPERATOR(SIGN) \
    friend constexpr vector<T, 3> operator SIGN(packed3 a, packed3 b) { return vector<T, 3>(a) SIGN vector<T, 3>(b); } \
    packed3 &operator SIGN##=(packed3 b) { return *this = packed3(*this SIGN b); }
    MPSREF_OPERATOR(+) MPSREF_OPERATOR(-) MPSREF_OPERATOR(*) MPSREF_OPERATOR(/)
#undef MPSREF_OPERATOR
    friend constexpr vector<T, 3> operator-(packed3 a) { return -vector<T, 3>(a); }
};

// The components of a type; `whole` is the vector that it converts to.
template <class T> struct shape {
    typedef T element;
    typedef T whole;
    enum { size = 1, is_vector = 0 };
};
template <class T, int N> struct shape<T __attribute__((ext_vector_type(N)))> {
    typedef T element;
    typedef vector<T, N> whole;
    enum { size = N, is_vector = 1 };
};
template <class T> struct shape<packed3<T>> : shape<vector<T, 3>> {};
template <class T> struct shape<const T> : shape<T> {};
template <class T> struct shape<volatile T> : shape<T> {};

template <class T> struct is_narrow { enum { value = 0 }; };
template <> struct is_narrow<half> { enum { value = 1 }; };
#if __METAL_VERSION__ >= 310
template <> struct is_narrow<bfloat> { enum { value = 1 }; };
#endif

template <class T> constexpr constant bool is_floating = __is_same(T, float) || is_narrow<T>::value;
template <class T> constexpr constant bool is_number = __is_integral(T) || is_floating<T>;

// half and bfloat do not convert to each other.
template <class T, class U> constexpr T scalar(U x) {
    if constexpr (is_narrow<T>::value && is_narrow<U>::value && !__is_same(T, U))
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

template <class V, class A> constexpr void append(thread V &v, thread int &at, A part) {
    for (int i = 0; i < shape<A>::size; i++) v[at++] = lane<typename shape<V>::element>(part, i);
}

// float4(a, b.xyz), float4(0), float4(int4), T(x), T(a, b), ...: a vector from parts, from one scalar, or by conversion;
// a scalar or an object of a class.
template <class V> constexpr V construct() { return V{}; }
template <class V, class A> constexpr V construct(A a) {
    if constexpr (!shape<V>::is_vector || __is_class(A) && !shape<A>::is_vector) {
        return scalar<V>(a);
    } else if constexpr (__is_same(A, typename shape<V>::whole)) {
        return a;
    } else {
        static_assert(!shape<A>::is_vector || int(shape<A>::size) == int(shape<V>::size),
                      "a vector is converted from one of the same size");
        V v{};
        for (int i = 0; i < shape<V>::size; i++) v[i] = lane<typename shape<V>::element>(a, i);
        return v;
    }
}
template <class V, class A, class B, class... Parts>
constexpr V construct(A a, B b, Parts... parts) {
    if constexpr (shape<V>::is_vector) {
        static_assert((int(shape<A>::size + shape<B>::size) + ... + int(shape<Parts>::size)) == int(shape<V>::size),
                      "a vector is built from as many components as it has");
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

template <class To, class From> constexpr To bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "as_type needs two types of the same size");
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

} // namespace mpsref

#define MPSREF_PACKED(T) \
    typedef T packed_##T##2 __attribute__((ext_vector_type(2), aligned(sizeof(T)))); \
    typedef mpsref::packed3<T> packed_##T##3; \
    typedef T packed_##T##4 __attribute__((ext_vector_type(4), aligned(sizeof(T))));
MPSREF_NUMBERS(MPSREF_PACKED)
#undef MPSREF_PACKED

#ifndef MPSREF_STRICT
#include "casts.h"
#endif
