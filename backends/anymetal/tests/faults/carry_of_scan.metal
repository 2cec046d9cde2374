// Prefix sum of a long row, chunk by chunk. The last thread replaces the carry that all others still read.
#include <metal_stdlib>
using namespace metal;

kernel void carry_of_scan(device const uint *x, device uint *sums, constant uint &n,
                          uint t [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simd [[simdgroup_index_in_threadgroup]]) {
    threadgroup uint carry;
    threadgroup uint totals[32];
    if (t == 0) carry = 0;
    for (uint start = 0; start < n; start += size) {
        uint own = x[start + t], sum = simd_prefix_inclusive_sum(own);
        if (lane == 31) totals[simd] = sum;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint s = 0; s < simd; s++) sum += totals[s];
        sum += carry;  // first
        sums[start + t] = sum;
#ifndef WRONG
        threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
        if (t == size - 1)
            carry = sum;  // second
#ifdef WRONG
        threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    }
}
