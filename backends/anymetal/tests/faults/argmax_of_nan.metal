// The index of the largest element, which no comparison sets if all are NaN.
#include <metal_stdlib>
using namespace metal;

kernel void argmax_of_nan(device const float *x, device uint *y, constant uint &n,
                          uint row [[thread_position_in_grid]]) {
    float most = -INFINITY;
#ifdef WRONG
    uint best;
#else
    uint best = 0;
#endif
    for (uint k = 0; k < n; k++)
        if (x[row * n + k] > most) {
            most = x[row * n + k];
            best = k;
        }
    y[row] = best;  // here
}
