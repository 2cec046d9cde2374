// All lanes of the first simdgroup read a partial sum, and there are fewer simdgroups than lanes.
#include <metal_stdlib>
using namespace metal;

kernel void sums_of_absent_simdgroups(device const float *x, device float *out,
                                      uint i [[thread_position_in_grid]],
                                      uint group [[threadgroup_position_in_grid]],
                                      uint lane [[thread_index_in_simdgroup]],
                                      uint simd [[simdgroup_index_in_threadgroup]],
                                      uint simds [[simdgroups_per_threadgroup]]) {
    threadgroup float sums[32];
    float sum = simd_sum(x[i]);
    if (lane == 0) sums[simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd > 0) return;
    float own = 0;
#ifndef WRONG
    if (lane < simds)
#endif
        own = sums[lane];  // here
    sum = simd_sum(own);
    if (lane == 0) out[group] = sum;
}
