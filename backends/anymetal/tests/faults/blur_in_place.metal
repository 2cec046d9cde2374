// A filter of three elements. In place, a thread reads a neighbour that another thread may have replaced.
#include <metal_stdlib>
using namespace metal;

kernel void blur_in_place(device float *x, device float *y, constant uint &n,
                          uint i [[thread_position_in_grid]]) {
    uint left = max(i, 1u) - 1, right = min(i + 1, n - 1);
    float sum = x[left] + 2 * x[i] + x[right];  // first
#ifdef WRONG
    x[i] = sum / 4;  // second
#else
    y[i] = sum / 4;
#endif
}
