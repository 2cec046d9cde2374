// Half of a simdgroup writes, and only that half waits.
#include <metal_stdlib>
using namespace metal;

kernel void simdgroup_barrier_in_branch(device const float *x, device float *y,
                                        uint i [[thread_position_in_grid]],
                                        uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float half_row[16];
    if (lane < 16) {
        half_row[lane] = x[i];
#ifdef WRONG
        simdgroup_barrier(mem_flags::mem_threadgroup);  // here
        y[i] = half_row[15 - lane];
#endif
    }
#ifndef WRONG
    simdgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = half_row[15 - lane % 16];
#endif
}
