// A function that returns where it has put its result: in a variable of its own, which has ended by then.
#include <metal_stdlib>
using namespace metal;

struct window {
    thread const float *first;
    uint length;
};

#ifdef WRONG
static window last_three(device const float *x, uint i, thread float *) {
    float values[3];
#else
static window last_three(device const float *x, uint i, thread float *values) {
#endif
    for (uint k = 0; k < 3; k++) values[k] = x[i + k];
    return {values, 3};
}

kernel void window_returned(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    float values[3];
    window w = last_three(x, i, values);
    float sum = 0;
    for (uint k = 0; k < w.length; k++) sum += w.first[k];  // here
    y[i] = sum;
}
