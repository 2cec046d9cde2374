// A reduction over the lanes waits for all of them, and orders no memory: a barrier must follow the store.
#include <metal_stdlib>
using namespace metal;

kernel void lockstep_after_simd_sum(device const float *x, device float *y, uint i [[thread_position_in_grid]],
                                    uint lane [[thread_index_in_simdgroup]],
                                    uint simd [[simdgroup_index_in_threadgroup]]) {
    threadgroup float kept[2][32];
    float own = x[i];
    kept[simd][lane] = own;  // first
    float sum = simd_sum(own);
#ifndef WRONG
    simdgroup_barrier(mem_flags::mem_threadgroup);
#endif
    y[i] = kept[simd][lane ^ 1] / sum;  // second
}
