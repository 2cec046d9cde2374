// The bias is optional: the kernel must not read it if the arguments say that there is none.
#include <metal_stdlib>
using namespace metal;

kernel void optional_bias(device const float *x, device const float *bias, device float *y,
                          constant bool &has_bias, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    float b = bias[i % 8];  // here
    y[i] = x[i] + (has_bias ? b : 0);
#else
    y[i] = x[i];
    if (has_bias) y[i] += bias[i % 8];
#endif
}
