// A group publishes its row: one thread counts it, after a barrier, for all threads.
#include <metal_stdlib>
using namespace metal;

kernel void release_by_one_thread(device const float *x, device float *rows, device atomic_uint &ready, device float *y,
                                  uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                                  uint n [[threads_per_threadgroup]], uint groups [[threadgroups_per_grid]]) {
    threadgroup uint before;
    rows[i] = 2 * x[i];  // first
#ifdef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
#else
    threadgroup_barrier(mem_flags::mem_device);
#endif
    if (t == 0) {
        atomic_thread_fence(mem_flags::mem_device, memory_order_release);
        before = atomic_fetch_add_explicit(&ready, 1, memory_order_relaxed);
        atomic_thread_fence(mem_flags::mem_device, memory_order_acquire);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (before + 1 < groups)
        return;
    float sum = 0;
    for (uint k = t; k < groups * n; k += n)
        sum += rows[(k + 7) % (groups * n)];  // second
    y[t] = sum;
}
