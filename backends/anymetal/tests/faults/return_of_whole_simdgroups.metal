// Simdgroups without rows return; the others meet in barriers of simdgroups, or of all.
#include <metal_stdlib>
using namespace metal;

kernel void return_of_whole_simdgroups(device const float *x, device float *y, constant uint &rows,
                                       uint lane [[thread_index_in_simdgroup]],
                                       uint row [[simdgroup_index_in_threadgroup]]) {
    threadgroup float part[4][32];
    if (row >= rows)
        return;
    part[row][lane] = x[row * 32 + lane];
#ifdef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);  // here
#else
    simdgroup_barrier(mem_flags::mem_threadgroup);
#endif
    y[row * 32 + lane] = part[row][31 - lane];
}
