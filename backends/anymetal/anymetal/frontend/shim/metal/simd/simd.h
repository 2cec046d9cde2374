// <simd/simd.h>: the names under which structs shared with C have vectors and matrices.
#pragma once
#include <metal_stdlib>

#define MPSREF_NAMES(T, N) \
    typedef T##N vector_##T##N; \
    typedef T##N simd_##T##N; \
    namespace simd { using ::T##N; }
#define MPSREF_EACH_SIZE(T) MPSREF_NAMES(T, 2) MPSREF_NAMES(T, 3) MPSREF_NAMES(T, 4)
MPSREF_EACH_SIZE(char) MPSREF_EACH_SIZE(uchar) MPSREF_EACH_SIZE(short) MPSREF_EACH_SIZE(ushort)
MPSREF_EACH_SIZE(int) MPSREF_EACH_SIZE(uint) MPSREF_EACH_SIZE(long) MPSREF_EACH_SIZE(ulong)
MPSREF_EACH_SIZE(half) MPSREF_EACH_SIZE(float)
#undef MPSREF_NAMES
#define MPSREF_NAMES(T, N) \
    typedef metal::T##N matrix_##T##N; \
    typedef metal::T##N simd_##T##N; \
    namespace simd { using metal::T##N; }
MPSREF_EACH_SIZE(float2x) MPSREF_EACH_SIZE(float3x) MPSREF_EACH_SIZE(float4x)
MPSREF_EACH_SIZE(half2x) MPSREF_EACH_SIZE(half3x) MPSREF_EACH_SIZE(half4x)
#undef MPSREF_NAMES
#undef MPSREF_EACH_SIZE
