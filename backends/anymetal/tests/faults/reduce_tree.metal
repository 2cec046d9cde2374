// Sums of rows by a tree. Without a barrier in the loop, a thread reads a partial sum that its owner still changes.
#include <metal_stdlib>
using namespace metal;

kernel void reduce_tree(device const float *x, device float *sums,
                        uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                        uint row [[threadgroup_position_in_grid]]) {
    threadgroup float partial[256];
    partial[t] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint step = 128; step > 0; step /= 2) {
        if (t < step) {
            float other = partial[t + step];  // first
            partial[t] += other;              // second
        }
#ifndef WRONG
        threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    }
    if (t == 0) sums[row] = partial[0];
}
