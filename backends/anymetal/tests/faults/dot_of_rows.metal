// Dot products of rows, one thread a row. The sum is a variable that nothing sets before it is added to.
#include <metal_stdlib>
using namespace metal;

kernel void dot_of_rows(device const float *x, device const float *y, device float *dots, constant uint &width,
                        uint row [[thread_position_in_grid]]) {
#ifdef WRONG
    float sum;
#else
    float sum = 0;
#endif
    for (uint k = 0; k < width; k++)
        sum += x[row * width + k] * y[row * width + k];  // here
    dots[row] = sum;
}
