// y = alpha x + beta y. For beta = 0 the old y is not to be read: undefined contents times 0 may be NaN.
#include <metal_stdlib>
using namespace metal;

kernel void beta_of_zero(device const float *x, device float *y, constant float &alpha, constant float &beta,
                         uint i [[thread_position_in_grid]]) {
    float sum = alpha * x[i];
#ifndef WRONG
    if (beta != 0)
#endif
    sum += beta * y[i];  // here
    y[i] = sum;
}
