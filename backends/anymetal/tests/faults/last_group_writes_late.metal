// The partial sum is written behind the fence, which releases what was written before it.
#include <metal_stdlib>
using namespace metal;

kernel void last_group_writes_late(device const float *x, device float *partial, device atomic_uint *finished,
                                   device float *sum, uint i [[thread_position_in_grid]],
                                   uint t [[thread_position_in_threadgroup]],
                                   uint group [[threadgroup_position_in_grid]],
                                   uint groups [[threadgroups_per_grid]]) {
    float own = simd_sum(x[i]);
    if (t > 0) return;
#ifdef WRONG
    atomic_thread_fence(mem_flags::mem_device, memory_order_release, thread_scope_device);
#endif
    partial[group] = own;  // first
#ifndef WRONG
    atomic_thread_fence(mem_flags::mem_device, memory_order_release, thread_scope_device);
#endif
    if (atomic_fetch_add_explicit(finished, 1u, memory_order_relaxed) < groups - 1) return;
    atomic_thread_fence(mem_flags::mem_device, memory_order_acquire, thread_scope_device);
    float all = 0;
    for (uint g = 0; g < groups; g++)
        all += partial[g];  // second
    *sum = all;
}
