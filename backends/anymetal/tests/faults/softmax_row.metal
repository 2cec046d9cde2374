// Softmax of rows. All threads read the maximum from shared[0]; the sums then reuse the same memory.
#include <metal_stdlib>
using namespace metal;

kernel void softmax_row(device const float *x, device float *y,
                        uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) {
    threadgroup float shared[128];
    shared[t] = x[i];
    for (uint step = 64; step > 0; step /= 2) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (t < step) shared[t] = max(shared[t], shared[t + step]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float largest = shared[0];  // first
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    float e = exp(x[i] - largest);
    shared[t] = e;  // second
    for (uint step = 64; step > 0; step /= 2) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (t < step) shared[t] += shared[t + step];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = e / shared[0];
}
