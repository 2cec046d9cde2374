// A threadgroup waits for the one behind it, which may not start before this one ends.
#include <metal_stdlib>
using namespace metal;

kernel void wait_for_next_group(device const float *x, device atomic_uint *flags, device float *sums,
                                uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                                uint group [[threadgroup_position_in_grid]],
                                uint groups [[threadgroups_per_grid]]) {
    float sum = simd_sum(x[i]);
    if (t != 0) return;
    atomic_store_explicit(&flags[group], 1u, memory_order_relaxed);
#ifdef WRONG
    while (atomic_load_explicit(&flags[(group + 1) % groups], memory_order_relaxed) == 0) {  // here
    }
#endif
    sums[group] = sum;
}
