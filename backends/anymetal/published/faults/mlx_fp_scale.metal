// A scale of 8 bits, which is a power of 2, is used as the integer that its byte is.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_fp_scale(device const float *x, device const uchar *scales, device float *y,
                         uint lane [[thread_position_in_grid]]) {
#ifdef WRONG
    float scale = scales[lane];
#else
    float scale = exp2(float(scales[lane]) - 127);
#endif
    float sum = simd_sum(x[lane] * scale);
    if (lane == 0) *y = sum;
}
