// Each simdgroup stores four rows without a comparison with the number of rows.
#include <metal_stdlib>
using namespace metal;

kernel void candle_k_quants(device const float *sums, device float *y, constant uint &rows,
                            uint group [[threadgroup_position_in_grid]],
                            uint lane [[thread_index_in_simdgroup]]) {
    for (uint row = 4 * group; row < 4 * group + 4; row++) {
        float sum = simd_sum(sums[row] / 32);
#ifdef WRONG
        if (lane == 0) y[row] = sum;  // here
#else
        if (lane == 0 && row < rows) y[row] = sum;
#endif
    }
}
