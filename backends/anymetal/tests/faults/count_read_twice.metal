// A thread reads a counter plainly and, behind a barrier, atomically, while others count on.
#include <metal_stdlib>
using namespace metal;

kernel void count_read_twice(device atomic_uint *count, device uint *y, uint i [[thread_position_in_threadgroup]]) {
    const uint before = i == 0 ? *(device uint *)count : 0;  // first
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_device);
#endif
    if (i == 0)
        y[0] = atomic_load_explicit(count, memory_order_relaxed) >= before;
    if (i > 32)
        atomic_fetch_add_explicit(count, 1u, memory_order_relaxed);  // second
}
