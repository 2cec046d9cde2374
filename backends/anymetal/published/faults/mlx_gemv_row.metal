// The offset of a row is the product of two 32-bit integers, which overflows for a matrix of 12,347 x 174,000.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_gemv_row(device const float *matrix, device float *y, constant int &first, constant int &pitch,
                         uint i [[thread_position_in_grid]]) {
    int row = first + int(i);
#ifdef WRONG
    matrix += row * pitch;  // here
#else
    matrix += size_t(row) * pitch;
#endif
    y[i] = matrix[0] + 1;  // here
}
