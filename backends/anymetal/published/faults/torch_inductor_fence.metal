// The barrier stands behind the first read of what another thread writes, not in front of it.
#include <metal_stdlib>
using namespace metal;

kernel void torch_inductor_fence(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    threadgroup float square[1];
    if (i == 0) square[0] = x[0] * x[0];  // first
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    float value = square[0];  // second
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = value;
}
