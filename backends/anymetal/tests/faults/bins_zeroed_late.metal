// The bins of a histogram are zeroed by plain stores, which a barrier must separate from the atomic additions.
#include <metal_stdlib>
using namespace metal;

kernel void bins_zeroed_late(device const uint *x, device uint *counts, uint i [[thread_position_in_grid]],
                             uint t [[thread_position_in_threadgroup]]) {
    threadgroup uint bins[64];
    bins[t] = 0;  // first
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    atomic_fetch_add_explicit((threadgroup atomic_uint *)&bins[x[i] % 64], 1u, memory_order_relaxed);  // second
    threadgroup_barrier(mem_flags::mem_threadgroup);
    counts[t] = bins[t];
}
