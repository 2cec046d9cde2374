// A sum of the lanes by shuffles reads lanes that a partial simdgroup does not have; simd_sum adds those that exist.
#include <metal_stdlib>
using namespace metal;

kernel void shuffle_in_last_simdgroup(device const float *x, device float *sums,
                                      uint i [[thread_position_in_grid]],
                                      uint lane [[thread_index_in_simdgroup]],
                                      uint simd [[simdgroup_index_in_threadgroup]]) {
    float sum = x[i];
#ifdef WRONG
    for (ushort step = 16; step > 0; step /= 2)
        sum += simd_shuffle_down(sum, step);  // here
#else
    sum = simd_sum(sum);
#endif
    if (lane == 0) sums[simd] = sum;
}
