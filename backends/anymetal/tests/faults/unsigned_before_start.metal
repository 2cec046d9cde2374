// The same window with unsigned indices, which wrap: 16 GiB behind the buffer, not in front of it.
#include <metal_stdlib>
using namespace metal;

kernel void unsigned_before_start(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    float before = x[i - 1];  // here
#else
    float before = i > 0 ? x[i - 1] : 0;
#endif
    y[i] = x[i] - before;
}
