// Transpose by tiles with a padded pitch. Each element is read by another thread than the one that wrote it.
#include <metal_stdlib>
using namespace metal;

kernel void transpose_tile(device const half *x, device half *y, constant uint &n,
                           uint2 t [[thread_position_in_threadgroup]],
                           uint2 tile [[threadgroup_position_in_grid]]) {
    threadgroup half block[16][16 + 1];
    block[t.y][t.x] = x[(tile.y * 16 + t.y) * n + tile.x * 16 + t.x];  // first
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    y[(tile.x * 16 + t.y) * n + tile.y * 16 + t.x] = block[t.x][t.y];  // second
}
