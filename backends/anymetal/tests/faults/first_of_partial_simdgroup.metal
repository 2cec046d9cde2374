// A sum of pairs down a simdgroup, whose last one has twenty lanes.
#include <metal_stdlib>
using namespace metal;

kernel void first_of_partial_simdgroup(device const float *x, device float *y, uint i [[thread_position_in_threadgroup]],
                                       uint n [[threads_per_threadgroup]],
                                       uint lane [[thread_index_in_simdgroup]]) {
    const uint lanes = min(n - (i - lane), 32u);
    float sum = x[i];
    for (ushort step = 16; step > 0; step /= 2) {
#ifdef WRONG
        sum += simd_shuffle_down(sum, step);  // here
#else
        const float other = simd_shuffle(sum, lane + step < lanes ? lane + step : lane);
        if (lane + step < lanes)
            sum += other;
#endif
    }
    if (lane == 0)
        y[i / 32] = sum;
}
