// What MSL knows before any include: the qualifiers, the scalar and vector types, and their constructors.
//
// Read by two passes. The strict pass (MPSREF_STRICT) is C++ for OpenCL, whose address spaces are those of Metal; it
// only checks. The running pass is C++ for the processor, or for an NVIDIA GPU (MPSREF_CUDA), where pointers of all
// address spaces are alike.
#pragma once

#ifdef MPSREF_CUDA
#pragma clang force_cuda_host_device begin // every function may run on the GPU
#endif

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
#define kernel static inline
#define device
#define constant const
#define threadgroup
#define thread
typedef _Float16 half;
constexpr half operator""h(long double x) { return half(float(x)); }
constexpr half operator""H(long double x) { return half(float(x)); }
#endif

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;

#if __METAL_VERSION__ >= 310
#ifdef MPSREF_STRICT
typedef _Float16 bfloat; // a type of its own with the arithmetic of half: this pass never runs it
#else
typedef __bf16 bfloat;
#endif
#endif

#define MPSREF_VECTOR(ELEMENT, NAME) \
    typedef ELEMENT NAME##2 __attribute__((ext_vector_type(2))); \
    typedef ELEMENT NAME##3 __attribute__((ext_vector_type(3))); \
    typedef ELEMENT NAME##4 __attribute__((ext_vector_type(4)));
#define MPSREF_INTEGERS(M) M(char) M(uchar) M(short) M(ushort) M(int) M(uint) M(long) M(ulong)
#define MPSREF_TWICE(T) MPSREF_VECTOR(T, T)
MPSREF_INTEGERS(MPSREF_TWICE)
MPSREF_TWICE(half)
MPSREF_TWICE(float)
#if __METAL_VERSION__ >= 310
MPSREF_TWICE(bfloat)
#endif
MPSREF_VECTOR(int, bool) // a comparison of vectors gives integers here: 0, and anything else for true
#undef MPSREF_TWICE

#define MPSREF_PACKED(T) \
    typedef T packed_##T##2 __attribute__((ext_vector_type(2), aligned(sizeof(T)))); \
    typedef T packed_##T##4 __attribute__((ext_vector_type(4), aligned(sizeof(T))));
MPSREF_INTEGERS(MPSREF_PACKED)
MPSREF_PACKED(half)
MPSREF_PACKED(float)
#undef MPSREF_PACKED

namespace mpsref {

template <class T> struct shape {
    typedef T element;
    enum { size = 1 };
};
template <class T, int N> struct shape<T __attribute__((ext_vector_type(N)))> {
    typedef T element;
    enum { size = N };
};

template <class V, class A> inline void append(thread V &v, thread int &at, A part) {
    typedef typename shape<V>::element element;
    if constexpr (shape<A>::size == 1)
        v[at++] = element(part);
    else
        for (int i = 0; i < shape<A>::size; i++) v[at++] = element(part[i]);
}

// float4(a, b.xyz), float4(0), float4(int4), ...: a vector from parts, from one scalar, or by conversion.
template <class V> constexpr V construct() { return V{}; }
template <class V, class A> constexpr V construct(A a) {
    typedef typename shape<V>::element element;
    if constexpr (shape<A>::size == 1) {
        return V(element(a));
    } else {
        static_assert(int(shape<A>::size) == int(shape<V>::size), "a vector is converted from one of the same size");
        return __builtin_convertvector(a, V);
    }
}
template <class V, class... Parts> constexpr V construct(Parts... parts) {
    static_assert((0 + ... + int(shape<Parts>::size)) == int(shape<V>::size),
                  "a vector is built from as many components as it has");
    if constexpr (sizeof...(Parts) == int(shape<V>::size)) {
        return V{typename shape<V>::element(parts)...};
    } else {
        V v{};
        int at = 0;
        (append(v, at, parts), ...);
        return v;
    }
}

} // namespace mpsref

// `float4(...)` is a call of `construct`; `float4` without a parenthesis stays the type.
#define char2(...) mpsref::construct<char2>(__VA_ARGS__)
#define char3(...) mpsref::construct<char3>(__VA_ARGS__)
#define char4(...) mpsref::construct<char4>(__VA_ARGS__)
#define uchar2(...) mpsref::construct<uchar2>(__VA_ARGS__)
#define uchar3(...) mpsref::construct<uchar3>(__VA_ARGS__)
#define uchar4(...) mpsref::construct<uchar4>(__VA_ARGS__)
#define short2(...) mpsref::construct<short2>(__VA_ARGS__)
#define short3(...) mpsref::construct<short3>(__VA_ARGS__)
#define short4(...) mpsref::construct<short4>(__VA_ARGS__)
#define ushort2(...) mpsref::construct<ushort2>(__VA_ARGS__)
#define ushort3(...) mpsref::construct<ushort3>(__VA_ARGS__)
#define ushort4(...) mpsref::construct<ushort4>(__VA_ARGS__)
#define int2(...) mpsref::construct<int2>(__VA_ARGS__)
#define int3(...) mpsref::construct<int3>(__VA_ARGS__)
#define int4(...) mpsref::construct<int4>(__VA_ARGS__)
#define uint2(...) mpsref::construct<uint2>(__VA_ARGS__)
#define uint3(...) mpsref::construct<uint3>(__VA_ARGS__)
#define uint4(...) mpsref::construct<uint4>(__VA_ARGS__)
#define long2(...) mpsref::construct<long2>(__VA_ARGS__)
#define long3(...) mpsref::construct<long3>(__VA_ARGS__)
#define long4(...) mpsref::construct<long4>(__VA_ARGS__)
#define ulong2(...) mpsref::construct<ulong2>(__VA_ARGS__)
#define ulong3(...) mpsref::construct<ulong3>(__VA_ARGS__)
#define ulong4(...) mpsref::construct<ulong4>(__VA_ARGS__)
#define half2(...) mpsref::construct<half2>(__VA_ARGS__)
#define half3(...) mpsref::construct<half3>(__VA_ARGS__)
#define half4(...) mpsref::construct<half4>(__VA_ARGS__)
#define float2(...) mpsref::construct<float2>(__VA_ARGS__)
#define float3(...) mpsref::construct<float3>(__VA_ARGS__)
#define float4(...) mpsref::construct<float4>(__VA_ARGS__)
#define bool2(...) mpsref::construct<bool2>(__VA_ARGS__)
#define bool3(...) mpsref::construct<bool3>(__VA_ARGS__)
#define bool4(...) mpsref::construct<bool4>(__VA_ARGS__)
#if __METAL_VERSION__ >= 310
#define bfloat2(...) mpsref::construct<bfloat2>(__VA_ARGS__)
#define bfloat3(...) mpsref::construct<bfloat3>(__VA_ARGS__)
#define bfloat4(...) mpsref::construct<bfloat4>(__VA_ARGS__)
#endif
#define packed_char2(...) mpsref::construct<packed_char2>(__VA_ARGS__)
#define packed_char4(...) mpsref::construct<packed_char4>(__VA_ARGS__)
#define packed_uchar2(...) mpsref::construct<packed_uchar2>(__VA_ARGS__)
#define packed_uchar4(...) mpsref::construct<packed_uchar4>(__VA_ARGS__)
#define packed_short2(...) mpsref::construct<packed_short2>(__VA_ARGS__)
#define packed_short4(...) mpsref::construct<packed_short4>(__VA_ARGS__)
#define packed_ushort2(...) mpsref::construct<packed_ushort2>(__VA_ARGS__)
#define packed_ushort4(...) mpsref::construct<packed_ushort4>(__VA_ARGS__)
#define packed_int2(...) mpsref::construct<packed_int2>(__VA_ARGS__)
#define packed_int4(...) mpsref::construct<packed_int4>(__VA_ARGS__)
#define packed_uint2(...) mpsref::construct<packed_uint2>(__VA_ARGS__)
#define packed_uint4(...) mpsref::construct<packed_uint4>(__VA_ARGS__)
#define packed_long2(...) mpsref::construct<packed_long2>(__VA_ARGS__)
#define packed_long4(...) mpsref::construct<packed_long4>(__VA_ARGS__)
#define packed_ulong2(...) mpsref::construct<packed_ulong2>(__VA_ARGS__)
#define packed_ulong4(...) mpsref::construct<packed_ulong4>(__VA_ARGS__)
#define packed_half2(...) mpsref::construct<packed_half2>(__VA_ARGS__)
#define packed_half4(...) mpsref::construct<packed_half4>(__VA_ARGS__)
#define packed_float2(...) mpsref::construct<packed_float2>(__VA_ARGS__)
#define packed_float4(...) mpsref::construct<packed_float4>(__VA_ARGS__)
