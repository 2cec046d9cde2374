// A function sets two results by reference, the second only where there is one.
#include <metal_stdlib>
using namespace metal;

static void limits(float value, thread float &low, thread float &high) {
    low = value - 1;
#ifdef WRONG
    if (value > 1)
#endif
    high = value + 1;
}

kernel void limits_by_reference(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    float low, high;
    limits(x[i], low, high);
    y[i] = high - low;  // here
}
