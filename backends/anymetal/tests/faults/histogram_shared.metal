// Histogram in threadgroup memory. `bins[x]++` loses counts; atomics do not, and after a barrier plain reads are legal.
#include <metal_stdlib>
using namespace metal;

kernel void histogram_shared(device const uchar *x, device uint *counts, uint i [[thread_position_in_grid]],
                             uint t [[thread_position_in_threadgroup]],
                             uint group [[threadgroup_position_in_grid]]) {
    threadgroup atomic_uint bins[64];
    threadgroup uint *plain = (threadgroup uint *)bins;
    plain[t] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < 256; k += 64) {
        uchar own = x[group * 256 + k + t];
#ifdef WRONG
        plain[own / 4]++;  // first, second
#else
        atomic_fetch_add_explicit(&bins[own / 4], 1u, memory_order_relaxed);
#endif
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    counts[i] = plain[t];
}
