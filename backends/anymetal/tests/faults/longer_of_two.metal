// A pointer to one of two private arrays of different length.
#include <metal_stdlib>
using namespace metal;

kernel void longer_of_two(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    float a[3] = {1, 2, 3}, b[5] = {1, 2, 3, 4, 5};
    thread float *p = i < 4 ? a : b;
#ifdef WRONG
    y[i] = p[4] * x[i];  // here
#else
    y[i] = p[2] * x[i];
#endif
}
