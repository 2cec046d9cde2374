// C = A B by tiles of 16 x 16. Without the second barrier, a fast thread loads the next tiles while others multiply.
#include <metal_stdlib>
using namespace metal;

kernel void matmul_tile(device const float *a, device const float *b, device float *c, constant uint &n,
                        uint2 at [[thread_position_in_grid]], uint2 t [[thread_position_in_threadgroup]]) {
    threadgroup float tile_a[16][16], tile_b[16][16];
    float sum = 0;
    for (uint k = 0; k < n; k += 16) {
        tile_a[t.y][t.x] = a[at.y * n + k + t.x];    // second
        tile_b[t.y][t.x] = b[(k + t.y) * n + at.x];  // second
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint j = 0; j < 16; j++)
            sum += tile_a[t.y][j] * tile_b[j][t.x];  // first
#ifndef WRONG
        threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    }
    c[at.y * n + at.x] = sum;
}
