// A box filter over a tile of 8 x 8 with a halo of one pixel on each side, in a static array.
#include <metal_stdlib>
using namespace metal;

kernel void tile_with_halo(device const float *x, device float *y, constant uint &width,
                           uint2 at [[thread_position_in_grid]], uint2 t [[thread_position_in_threadgroup]],
                           uint index [[thread_index_in_threadgroup]]) {
#ifdef WRONG
    threadgroup float tile[10 * 9];
#else
    threadgroup float tile[10 * 10];
#endif
    int2 corner = int2(at - t) - 1;
    for (uint k = index; k < 100; k += 64) {
        int2 p = clamp(corner + int2(k % 10, k / 10), 0, int(width) - 1);
        tile[k] = x[p.y * int(width) + p.x];  // here
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0;
    for (uint k = 0; k < 9; k++)
        sum += tile[(t.y + k / 3) * 10 + t.x + k % 3];  // here
    y[at.y * width + at.x] = sum;
}
