// Two numbers are taken for an array.
#include <metal_stdlib>
using namespace metal;

static float second(thread const float *p) {
    return p[1];  // here
}
kernel void address_of_number(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    float a = x[i], b[2] = {a, a};
#ifdef WRONG
    y[i] = second(&a) + b[0];
#else
    y[i] = second(b) + b[0];
#endif
}
