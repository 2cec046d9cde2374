// The scale takes epsilon for a term of the sum, not for the lower limit of the norm.
#include <metal_stdlib>
using namespace metal;

kernel void ggml_l2_norm(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    const float epsilon = 1;
    float sum = simd_sum(x[i] * x[i]);
#ifdef WRONG
    y[i] = x[i] / sqrt(sum + epsilon);
#else
    y[i] = x[i] / max(sqrt(sum), epsilon);
#endif
}
