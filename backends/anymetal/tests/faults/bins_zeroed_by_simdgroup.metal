// A histogram in threadgroup memory is cleared by a loop of which the barrier is in the branch.
#include <metal_stdlib>
using namespace metal;

kernel void bins_zeroed_by_simdgroup(device const uint *x, device uint *y, uint i [[thread_position_in_threadgroup]]) {
    threadgroup atomic_uint bins[8];
    if (i < 8) ((threadgroup uint *)bins)[i] = 0;  // first
#ifdef WRONG
    simdgroup_barrier(mem_flags::mem_threadgroup);
#else
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    atomic_fetch_add_explicit(&bins[x[i] & 7], 1u, memory_order_relaxed);  // second
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (i < 8) y[i] = atomic_load_explicit(&bins[i], memory_order_relaxed);
}
