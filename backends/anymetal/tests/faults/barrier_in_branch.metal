// Two branches, each with a barrier of its own: they are different barriers, and neither is reached by all.
#include <metal_stdlib>
using namespace metal;

kernel void barrier_in_branch(device const float *x, device float *y, uint i [[thread_position_in_grid]],
                              uint t [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]]) {
    threadgroup float even[64], odd[64];
    if (t % 2 == 0) {
        even[t] = x[i];
#ifdef WRONG
        threadgroup_barrier(mem_flags::mem_threadgroup);  // first
#endif
    } else {
        odd[t] = -x[i];
#ifdef WRONG
        threadgroup_barrier(mem_flags::mem_threadgroup);  // second
#endif
    }
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    y[i] = t % 2 == 0 ? odd[size - 1 - t] : even[size - 1 - t];
}
