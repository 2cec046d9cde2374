// All threads set the total to zero; one is enough.
#include <metal_stdlib>
using namespace metal;

kernel void total_set_by_all(device const uint *x, device uint *totals, uint i [[thread_position_in_grid]],
                             uint t [[thread_position_in_threadgroup]],
                             uint group [[threadgroup_position_in_grid]]) {
    threadgroup uint total;
#ifndef WRONG
    if (t == 0)
#endif
    total = 0;  // first, second
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit((threadgroup atomic_uint *)&total, x[i], memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t == 0) totals[group] = total;
}
