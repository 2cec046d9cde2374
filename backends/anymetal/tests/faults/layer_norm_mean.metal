// One thread publishes the mean of a row; the others must not read it before.
#include <metal_stdlib>
using namespace metal;

kernel void layer_norm_mean(device const float *x, device float *y, constant uint &width,
                            uint row [[threadgroup_position_in_grid]],
                            uint t [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
                            uint simds [[simdgroups_per_threadgroup]]) {
    threadgroup float sums[32];
    threadgroup float mean;
    float sum = 0;
    for (uint k = t; k < width; k += size) sum += x[row * width + k];
    sum = simd_sum(sum);
    if (lane == 0) sums[simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd == 0) {
        sum = simd_sum(lane < simds ? sums[lane] : 0);
        if (lane == 0) mean = sum / width;  // first
    }
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    float m = mean;  // second
    for (uint k = t; k < width; k += size) y[row * width + k] = x[row * width + k] - m;
}
