// The first simdgroup combines the partial sums. A barrier inside its branch waits for the others for ever.
#include <metal_stdlib>
using namespace metal;

kernel void barrier_of_one_simdgroup(device const float *x, device float *y, uint i [[thread_position_in_grid]],
                                     uint lane [[thread_index_in_simdgroup]],
                                     uint simd [[simdgroup_index_in_threadgroup]],
                                     uint simds [[simdgroups_per_threadgroup]]) {
    threadgroup float sums[32];
    threadgroup float total;
    float sum = simd_sum(x[i]);
    if (lane == 0) sums[simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd == 0) {
        float all = simd_sum(lane < simds ? sums[lane] : 0);
        if (lane == 0) total = all;
#ifdef WRONG
        threadgroup_barrier(mem_flags::mem_threadgroup);  // here
#endif
    }
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = x[i] / total;
#else
    y[i] = x[i];
#endif
}
