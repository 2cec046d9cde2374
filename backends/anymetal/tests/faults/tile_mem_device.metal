// The barrier orders device memory, and the data is in threadgroup memory.
#include <metal_stdlib>
using namespace metal;

#ifdef WRONG
#define FLAGS mem_flags::mem_device
#else
#define FLAGS mem_flags::mem_device | mem_flags::mem_threadgroup
#endif

kernel void tile_mem_device(device const float4 *x, device float4 *y, uint i [[thread_position_in_grid]],
                            threadgroup float4 *tile [[threadgroup(0)]],
                            uint t [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]]) {
    tile[t] = x[i];  // first
    threadgroup_barrier(FLAGS);
    y[i] = tile[size - 1 - t];  // second
}
