// Sums of the rows of quads of 2 x 2 pixels. The right column of an image of one column has no pixel, but takes part.
#include <metal_stdlib>
using namespace metal;

kernel void quad_of_rows(device const float *x, device float *y, constant uint &width,
                         uint i [[thread_position_in_grid]], uint lane [[thread_index_in_quadgroup]]) {
    uint row = i / 4 * 2 + lane / 2, column = lane % 2;
#ifdef WRONG
    if (column >= width) return;
#endif
    float own = x[row * width + min(column, width - 1)];
    float other = quad_shuffle_xor(own, 1);  // here
    if (column < width) y[row * width + column] = other + own;
}
