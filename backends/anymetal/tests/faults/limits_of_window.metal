// An index is limited to a window. Behind the last element the window is empty, and its end is before its start.
#include <metal_stdlib>
using namespace metal;

kernel void limits_of_window(device const float *x, device float *y, constant int &n, uint i [[thread_position_in_grid]]) {
    int start = int(i) * 4, end = min(start + 4, n) - 1;
#ifndef WRONG
    if (start > end) {
        y[i] = 0;
        return;
    }
#endif
    int at = clamp(start + 2, start, end);  // here
    float2 limits = float2(min(x[0], x[1]), max(x[0], x[1]));
    y[i] = clamp(x[min(at, n - 1)], limits.x, limits.y);
}
