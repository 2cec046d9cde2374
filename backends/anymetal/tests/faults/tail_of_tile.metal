// The sum of a tile whose tail is past the end of the data: the tail must be filled with zeros.
#include <metal_stdlib>
using namespace metal;

kernel void tail_of_tile(device const half *x, device float *sums, constant uint &n,
                         uint group [[threadgroup_position_in_grid]],
                         uint t [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]]) {
    threadgroup half tile[128];
    uint i = group * size + t;
    if (i < n) tile[t] = x[i];
#ifndef WRONG
    else tile[t] = 0;
#endif
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t > 0) return;
    float sum = 0;
    for (uint k = 0; k < size; k++)
        sum += tile[k];  // here
    sums[group] = sum;
}
