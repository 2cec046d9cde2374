// A vector whose length is no multiple of the block of 256 is read past its end.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_qmv_block(device const float *x, device const uchar *w, device float *y, constant uint &length,
                          uint lane [[thread_index_in_simdgroup]]) {
    float sum = 0;
    for (uint block = 0; block < length; block += 256)
        for (uint at = block + 8 * lane; at < block + 8 * lane + 8; at++) {
#ifndef WRONG
            if (at >= length) break;
#endif
            sum += x[at] * w[at];  // here
        }
    sum = simd_sum(sum);
    if (lane == 0) *y = sum;
}
