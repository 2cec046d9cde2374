// The host launches more threadgroups than there are columns, and the kernel has no bound: the surplus ones write
// behind the output.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_strided_scan_grid(device const float *x, device float *y, constant uint &columns,
                                  uint column [[thread_position_in_grid]]) {
#ifndef WRONG
    if (column >= columns) return;
#endif
    float sum = 0;
    for (uint row = 0; row < 3; row++) {
        sum += x[row * columns + column];  // here
        y[row * columns + column] = sum;
    }
}
