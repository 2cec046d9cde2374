// The first threadgroup clears the bins that all of them count in; its own counts come last.
#include <metal_stdlib>
using namespace metal;

kernel void bins_zeroed_by_group(device const uint *x, device atomic_uint *bins, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    if (i < 8) ((device uint *)bins)[i] = 0;  // first
#endif
    threadgroup_barrier(mem_flags::mem_device);
    atomic_fetch_add_explicit(&bins[x[i] & 7], 1u, memory_order_relaxed);  // second
}
