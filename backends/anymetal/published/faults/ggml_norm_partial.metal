// The last simdgroup adds one partial sum a lane; with a threadgroup of 33 it has one lane for two sums.
#include <metal_stdlib>
using namespace metal;

kernel void ggml_norm_partial(device const float *x, device float *y, constant uint &length,
                              uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                              uint simd [[simdgroup_index_in_threadgroup]]) {
    threadgroup float partial[32];
    if (simd == 0) partial[lane] = 0;
    float sum = simd_sum(i < length ? x[i] : 0);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) partial[simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = simd_sum(partial[lane]);
    if (i < length) y[i] = sum;
}
