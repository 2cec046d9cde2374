// All threads count into an atomic variable, which one of them reads as a plain number.
#include <metal_stdlib>
using namespace metal;

kernel void total_of_atomic(device const uint *x, device uint *y, uint i [[thread_position_in_threadgroup]]) {
    threadgroup atomic_uint total;
    if (i == 0)
        atomic_store_explicit(&total, 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&total, x[i], memory_order_relaxed);  // first
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    if (i == 0)
        y[0] = *(threadgroup uint *)&total;  // second
}
