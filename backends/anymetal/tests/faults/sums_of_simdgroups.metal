// Each simdgroup leaves its sum for the first one. A barrier of a simdgroup does not order two of them.
#include <metal_stdlib>
using namespace metal;

kernel void sums_of_simdgroups(device const float *x, device float *out,
                               uint i [[thread_position_in_grid]], uint group [[threadgroup_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simd [[simdgroup_index_in_threadgroup]],
                               uint simds [[simdgroups_per_threadgroup]]) {
    threadgroup float sums[32];
    float sum = simd_sum(x[i]);
    if (lane == 0)
        sums[simd] = sum;  // first
#ifdef WRONG
    simdgroup_barrier(mem_flags::mem_threadgroup);
#else
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    if (simd == 0) {
        float one = 0;
        if (lane < simds) one = sums[lane];  // second
        sum = simd_sum(one);
        if (lane == 0) out[group] = sum;
    }
}
