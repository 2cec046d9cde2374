// Each thread strides over a row, and waits in the loop. The number of rounds must not depend on the thread.
#include <metal_stdlib>
using namespace metal;

kernel void loop_counts(device const float *x, device float *y, constant uint &n,
                        uint t [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]]) {
    threadgroup float block[64];
#ifdef WRONG
    for (uint k = t; k < n; k += size) {
#else
    for (uint k = t; k - t < n; k += size) {
#endif
        if (k < n) block[t] = x[k];
        threadgroup_barrier(mem_flags::mem_threadgroup);  // here
        uint other = t ^ 1;
        if (k < n) y[k] = block[other];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}
