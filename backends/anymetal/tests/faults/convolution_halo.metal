// Convolution of a line with five weights. The barrier must come after the halo, which few threads load, too.
#include <metal_stdlib>
using namespace metal;

constant float weights[5] = {1, 4, 6, 4, 1};

kernel void convolution_halo(device const float *x, device float *y, constant uint &n,
                             uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                             uint size [[threads_per_threadgroup]]) {
    threadgroup float line[64 + 4];
    line[t + 2] = x[i];
#ifdef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    if (t >= size - 4) {  // two elements at the start of the line, two at its end
        uint k = t + 4 - size, at = k < 2 ? k : size + k;
        line[at] = x[clamp(int(i - t + at) - 2, 0, int(n) - 1)];  // first
    }
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    float sum = 0;
    for (uint k = 0; k < 5; k++)
        sum += weights[k] * line[t + k];  // second
    y[i] = sum / 16;
}
