// A sum in device memory, to which the last thread of the grid adds without an atomic operation.
#include <metal_stdlib>
using namespace metal;

kernel void bias_added_plainly(device const float *x, device atomic_float *sum, uint i [[thread_position_in_grid]],
                               uint n [[threads_per_grid]]) {
    if (i == n - 1) {
#ifdef WRONG
        device float *plain = (device float *)sum;
        *plain = *plain + x[i];  // second
#else
        atomic_fetch_add_explicit(sum, x[i], memory_order_relaxed);
#endif
        return;
    }
    atomic_fetch_add_explicit(sum, x[i], memory_order_relaxed);  // first
}
