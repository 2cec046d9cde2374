// Each simdgroup computes four rows of a matrix times a vector. The rows of the last one may be past the end.
#include <metal_stdlib>
using namespace metal;

kernel void gemv_rows_of_four(device const float *a, device const float *x, device float *y, constant uint &rows,
                              uint lane [[thread_index_in_simdgroup]],
                              uint group [[threadgroup_position_in_grid]]) {
    for (uint r = group * 4; r < group * 4 + 4; r++) {
        float sum = simd_sum(a[min(r, rows - 1) * 32 + lane] * x[lane]);
#ifndef WRONG
        if (r < rows)
#endif
        if (lane == 0)
            y[r] = sum;  // here
    }
}
