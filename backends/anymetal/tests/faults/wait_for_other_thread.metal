// Two threads of a simdgroup wait for each other by flags. They need not run at the same time.
#include <metal_stdlib>
using namespace metal;

kernel void wait_for_other_thread(device const uint *x, device uint *y, uint t [[thread_position_in_threadgroup]]) {
    threadgroup atomic_uint values[32];
    atomic_store_explicit(&values[t], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_store_explicit(&values[t], x[t], memory_order_relaxed);
#ifdef WRONG
    while (atomic_load_explicit(&values[t ^ 1], memory_order_relaxed) == 0) {  // here
    }
#else
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    y[t] = atomic_load_explicit(&values[t ^ 1], memory_order_relaxed);
}
