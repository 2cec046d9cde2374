// The loader of a tile at the edge compares its row with the number of valid columns, and its column with that of the
// rows.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_block_loader(device const float *w, device float *y, uint i [[thread_position_in_threadgroup]]) {
    const uint2 valid(8, 3);  // columns, rows
    uint row = i / 8, column = i % 8;
#ifdef WRONG
    bool inside = row < valid.x;
#else
    bool inside = row < valid.y;
#endif
    y[i] = inside && column < valid.x ? w[row * valid.x + column] : 0;  // here
}
