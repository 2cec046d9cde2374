// A negative offset of a reversed view is added to an unsigned position: the sum wraps around before it is added to
// the pointer.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_row_reduce_negative(device const float *x, device float *y, uint lane [[thread_position_in_grid]]) {
    device const float *last = x + 32;
    for (int row = 0; row < 2; row++) {
        int offset = -32 * row;
#ifdef WRONG
        float sum = simd_sum(last[offset + lane]);  // here
#else
        float sum = simd_sum(last[offset + int(lane)]);
#endif
        if (lane == 0) y[row] = sum;
    }
}
