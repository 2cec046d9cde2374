// A function sums a private array of five numbers by its pointer.
#include <metal_stdlib>
using namespace metal;

static float sum(thread const float *p, int n) {
    float s = 0;
    for (int k = 0; k < n; k++) s += p[k];  // here
    return s;
}
kernel void end_of_private(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    float own[5];
    for (int k = 0; k < 5; k++) own[k] = x[i];
#ifdef WRONG
    y[i] = sum(own, 6);
#else
    y[i] = sum(own, 5);
#endif
}
