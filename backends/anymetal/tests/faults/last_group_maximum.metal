// As for sums, with the other fence missing: what the other threadgroups released is not acquired.
#include <metal_stdlib>
using namespace metal;

kernel void last_group_maximum(device const int *x, device int *partial, device atomic_uint *finished,
                               device int *maximum, uint i [[thread_position_in_grid]],
                               uint t [[thread_position_in_threadgroup]],
                               uint group [[threadgroup_position_in_grid]],
                               uint groups [[threadgroups_per_grid]]) {
    int own = simd_max(x[i]);
    if (t > 0) return;
    partial[group] = own;  // first
    atomic_thread_fence(mem_flags::mem_device, memory_order_release, thread_scope_device);
    if (atomic_fetch_add_explicit(finished, 1u, memory_order_relaxed) < groups - 1) return;
#ifndef WRONG
    atomic_thread_fence(mem_flags::mem_device, memory_order_acquire, thread_scope_device);
#endif
    for (uint g = 0; g < groups; g++)
        own = max(own, partial[g]);  // second
    *maximum = own;
}
