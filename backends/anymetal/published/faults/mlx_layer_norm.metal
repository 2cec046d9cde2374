// The second sum of a row is written to the memory that threads still read the first one from.
#include <metal_stdlib>
using namespace metal;

float sum_of_group(float x, threadgroup float *partial, uint lane, uint simd, uint simds) {
    x = simd_sum(x);
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    if (lane == 0) partial[simd] = x;  // first
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return simd_sum(lane < simds ? partial[lane] : 0);  // second
}

kernel void mlx_layer_norm(device const float *x, device float *y, uint i [[thread_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
                           uint simds [[simdgroups_per_threadgroup]]) {
    threadgroup float partial[32];
    float centred = x[i] - sum_of_group(x[i], partial, lane, simd, simds) / 64;
    y[i] = centred * rsqrt(sum_of_group(centred * centred, partial, lane, simd, simds) / 64);
}
