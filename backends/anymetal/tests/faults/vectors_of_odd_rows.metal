// A row of 15 floats does not start at a multiple of 16 bytes: only packed vectors can be read there.
#include <metal_stdlib>
using namespace metal;

kernel void vectors_of_odd_rows(device const float *x, device float *sums, constant uint &width,
                                uint row [[thread_position_in_grid]]) {
    device const float *from = x + row * width;
    float4 sum = 0;
    for (uint k = 0; k + 4 <= width; k += 4) {
#ifdef WRONG
        sum += *(device const float4 *)(from + k);  // here
#else
        sum += *(device const packed_float4 *)(from + k);
#endif
    }
    sums[row] = sum.x + sum.y + sum.z + sum.w;
}
