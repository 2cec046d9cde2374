// A causal convolution: the window of the first elements begins before the row.
#include <metal_stdlib>
using namespace metal;

kernel void window_before_start(device const float *x, device const float *w, device float *y, constant int &taps,
                                uint i [[thread_position_in_grid]]) {
    float sum = 0;
    for (int k = 0; k < taps; k++) {
        int from = int(i) - k;
#ifndef WRONG
        if (from >= 0)
#endif
        sum += w[k] * x[from];  // here
    }
    y[i] = sum;
}
