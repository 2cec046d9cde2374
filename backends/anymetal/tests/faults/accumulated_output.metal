// Chunks of a product are added to the output, which has no contents yet: the first must be stored instead.
#include <metal_stdlib>
using namespace metal;

kernel void accumulated_output(device const float *x, device float *y, constant uint &chunks,
                               uint i [[thread_position_in_grid]], uint size [[threads_per_grid]]) {
    for (uint chunk = 0; chunk < chunks; chunk++) {
        float product = x[chunk * size + i] * 0.5f;
#ifndef WRONG
        if (chunk == 0) y[i] = 0;
#endif
        y[i] += product;  // here
    }
}
