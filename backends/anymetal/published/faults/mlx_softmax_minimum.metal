// Lanes behind the end of a row take part with the lowest finite number, not with minus infinity: a row of minus
// infinities has another result than one without such lanes.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_softmax_minimum(device const float *x, device float *y, constant uint &length,
                                uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    const float padding = numeric_limits<float>::lowest();
#else
    const float padding = -INFINITY;
#endif
    float value = i < length ? x[i] : padding;
    float exponential = exp(value - simd_max(value));
    float sum = simd_sum(exponential);
    if (i < length) y[i] = exponential / sum;
}
