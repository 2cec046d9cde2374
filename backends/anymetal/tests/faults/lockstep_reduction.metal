// The last steps of a reduction are within a simdgroup, whose lanes need not run in lockstep.
#include <metal_stdlib>
using namespace metal;

kernel void lockstep_reduction(device const int *x, device int *sums, uint i [[thread_position_in_grid]],
                               uint t [[thread_position_in_threadgroup]],
                               uint row [[threadgroup_position_in_grid]]) {
    threadgroup int partial[64];
    partial[t] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t >= 32) return;
    for (uint step = 32; step > 0; step /= 2) {
        if (t < step) {
            int other = partial[t + step];  // first
            partial[t] += other;            // second
        }
#ifndef WRONG
        simdgroup_barrier(mem_flags::mem_threadgroup);
#endif
    }
    if (t == 0) sums[row] = partial[0];
}
