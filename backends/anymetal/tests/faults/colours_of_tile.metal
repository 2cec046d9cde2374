// A component of a colour that another thread wrote.
#include <metal_stdlib>
using namespace metal;

kernel void colours_of_tile(device const float *x, device float *y, uint i [[thread_position_in_threadgroup]],
                            uint n [[threads_per_threadgroup]]) {
    threadgroup float3 colours[64];
    colours[i] = float3(x[i], 1, 2);  // first
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    y[i] = colours[n - 1 - i].x;  // second
}
