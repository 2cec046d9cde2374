// Threads of a threadgroup exchange data through device memory; the barrier orders threadgroup memory alone.
#include <metal_stdlib>
using namespace metal;

#ifdef WRONG
#define FLAGS mem_flags::mem_threadgroup
#else
#define FLAGS mem_flags::mem_device
#endif

kernel void scratch_mem_threadgroup(device const float *x, device float *scratch, device float *y,
                                    uint i [[thread_position_in_grid]],
                                    uint t [[thread_position_in_threadgroup]],
                                    uint size [[threads_per_threadgroup]]) {
    scratch[i] = 2 * x[i];  // first
    threadgroup_barrier(FLAGS);
    y[i] = scratch[i - t + (size - 1 - t)];  // second
}
