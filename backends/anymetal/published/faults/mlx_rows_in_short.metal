// The rows that are left for a tile are stored in a short, which is negative for more than 32,767 of them.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_rows_in_short(device const float *x, device float *y, constant int &rows,
                              uint tile [[threadgroup_position_in_grid]], uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    short left = rows - int(i) * 8;  // here
#else
    short left = min(rows - int(i) * 8, 8);
#endif
    float sum = 0;
    for (short row = 0; row < min(left, short(8)); row++) sum += x[i * 8 + row];
    y[i] = sum;
}
