// Threads of a grid that is no multiple of a group: the last one clears what it does not load.
#include <metal_stdlib>
using namespace metal;

kernel void rows_of_last_group(device const float *x, device float *y, constant uint &n,
                               uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                               uint width [[threads_per_threadgroup]], uint full [[dispatch_threads_per_threadgroup]]) {
    threadgroup float part[64];
    part[t] = x[i];
#ifndef WRONG
    for (uint k = t + width; k < full; k += width)
        part[k] = 0;
#endif
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0;
    for (uint k = 0; k < full; k++)
        sum += part[k];  // here
    y[i] = sum;
}
