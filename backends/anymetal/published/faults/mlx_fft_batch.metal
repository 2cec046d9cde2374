// The place of a transform in a large batch is computed with 32-bit integers.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_fft_batch(device const float *x, device float *y, constant int &batch,
                          uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    long at = (batch + int(i)) * 800;  // here
#else
    long at = long(batch + int(i)) * 800;
#endif
    y[i] = x[at] + 2;  // here
}
