// The sums of the simdgroups of a scan are rewritten in the next round while the last round's carry is still read.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_scan(device const uint *x, device uint *y, uint t [[thread_position_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]]) {
    threadgroup uint sums[2];
    uint carry = 0;
    for (uint at = t; at < 256; at += 64) {
        uint sum = simd_prefix_inclusive_sum(x[at]);
        if (lane == 31) sums[simd] = sum;  // first
        threadgroup_barrier(mem_flags::mem_threadgroup);
        y[at] = carry + sum + (simd == 1 ? sums[0] : 0);  // second
        carry += sums[0] + sums[1];  // second
#ifndef WRONG
        threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    }
}
