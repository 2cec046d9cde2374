// Rows are read by float4. The last vector of a row may reach into the next row, and that of the last row past the end.
#include <metal_stdlib>
using namespace metal;

kernel void vector_at_end(device const float *x, device float *sums, constant uint &width, constant uint &rows,
                          uint row [[thread_position_in_grid]]) {
    float sum = 0;
    for (uint k = 0; k < width; k += 4) {
        float4 v = 0;
#ifdef WRONG
        v = *(device const packed_float4 *)(x + row * width + k);  // here
#else
        if (row * width + k + 4 <= rows * width)
            v = *(device const packed_float4 *)(x + row * width + k);
        else
            for (uint j = 0; j < width - k; j++) v[j] = x[row * width + k + j];
#endif
        for (uint j = 0; j < 4; j++)
            if (k + j < width) sum += v[j];
    }
    sums[row] = sum;
}
