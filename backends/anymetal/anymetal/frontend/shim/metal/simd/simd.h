// <simd/simd.h>: the names under which structs shared with C have vectors and matrices.
#pragma once
#include <metal_stdlib>

#define ANYMETAL_NAMES(T, N) \
    typedef T##N vector_##T##N; \
    typedef T##N simd_##T##N; \
    namespace simd { using ::T##N; }
#define ANYMETAL_EACH_SIZE(T) ANYMETAL_NAMES(T, 2) ANYMETAL_NAMES(T, 3) ANYMETAL_NAMES(T, 4)
ANYMETAL_EACH_SIZE(char) ANYMETAL_EACH_SIZE(uchar) ANYMETAL_EACH_SIZE(short) ANYMETAL_EACH_SIZE(ushort)
ANYMETAL_EACH_SIZE(int) ANYMETAL_EACH_SIZE(uint) ANYMETAL_EACH_SIZE(long) ANYMETAL_EACH_SIZE(ulong)
ANYMETAL_EACH_SIZE(half) ANYMETAL_EACH_SIZE(float)
#undef ANYMETAL_NAMES
#define ANYMETAL_NAMES(T, N) \
    typedef metal::T##N matrix_##T##N; \
    typedef metal::T##N simd_##T##N; \
    namespace simd { using metal::T##N; }
ANYMETAL_EACH_SIZE(float2x) ANYMETAL_EACH_SIZE(float3x) ANYMETAL_EACH_SIZE(float4x)
ANYMETAL_EACH_SIZE(half2x) ANYMETAL_EACH_SIZE(half3x) ANYMETAL_EACH_SIZE(half4x)
#undef ANYMETAL_NAMES
#undef ANYMETAL_EACH_SIZE
