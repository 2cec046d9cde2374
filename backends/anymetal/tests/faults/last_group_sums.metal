// The last threadgroup to finish adds the sums of all. Relaxed atomics order nothing: a release must come before each.
#include <metal_stdlib>
using namespace metal;

kernel void last_group_sums(device const float *x, device float *partial, device atomic_uint *finished,
                            device float *sum, uint i [[thread_position_in_grid]],
                            uint t [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
                            uint groups [[threadgroups_per_grid]]) {
    threadgroup bool is_last;
    float own = simd_sum(x[i]);
    if (t == 0) {
        partial[group] = own;  // first
#ifndef WRONG
        atomic_thread_fence(mem_flags::mem_device, memory_order_release, thread_scope_device);
#endif
        is_last = atomic_fetch_add_explicit(finished, 1u, memory_order_relaxed) == groups - 1;
        atomic_thread_fence(mem_flags::mem_device, memory_order_acquire, thread_scope_device);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    if (!is_last) return;
    float all = 0;
    if (t < groups) all = partial[t];  // second
    all = simd_sum(all);
    if (t == 0) *sum = all;
}
