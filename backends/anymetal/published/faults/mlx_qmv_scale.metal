// Lanes without elements in the last block read a scale behind the last one; NaN in that memory spoils the sum
// although it is multiplied by 0.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_qmv_scale(device const float *x, device const float *scales, device float *y, constant int &length,
                          uint lane [[thread_index_in_simdgroup]]) {
    float sum = 0;
    int remaining = clamp(length - 8 * int(lane), 0, 8);
    for (int i = 0; i < remaining; i++) sum += x[8 * lane + i];
#ifdef WRONG
    sum *= scales[lane];  // here
#else
    if (remaining > 0) sum *= scales[lane];
#endif
    sum = simd_sum(sum);
    if (lane == 0) *y = sum;
}
