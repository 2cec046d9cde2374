// The number of rows that are left for a tile, in a short: negative for matrices with more than 32767 rows.
#include <metal_stdlib>
using namespace metal;

kernel void rows_left_in_short(device const half *x, device half *y, constant int &rows,
                               uint tile [[thread_position_in_grid]]) {
    int row = int(tile) * 16;
#ifdef WRONG
    short left = rows - row;  // here
#else
    short left = short(min(rows - row, 16));
#endif
    half sum = 0;
    for (short r = 0; r < min(left, short(16)); r++) sum += x[row + r];
    y[tile] = sum;
}
