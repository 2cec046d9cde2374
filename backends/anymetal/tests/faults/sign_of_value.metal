// A function that returns nothing in one case.
#include <metal_stdlib>
using namespace metal;

static float sign_of(float x) {  // here
    if (x > 0) return 1;
#ifndef WRONG
    return -1;
#endif
}
kernel void sign_of_value(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    y[i] = sign_of(x[i]);
}
