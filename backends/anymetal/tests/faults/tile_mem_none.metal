// A barrier with mem_none orders no memory: neighbours of the tile may not be visible yet.
#include <metal_stdlib>
using namespace metal;

#ifdef WRONG
#define FLAGS mem_flags::mem_none
#else
#define FLAGS mem_flags::mem_threadgroup
#endif

kernel void tile_mem_none(device const float *x, device float *differences, uint i [[thread_position_in_grid]],
                          uint t [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]]) {
    threadgroup float tile[256];
    tile[t] = x[i];  // first
    threadgroup_barrier(FLAGS);
    differences[i] = tile[(t + 32) % size] - tile[t];  // second
}
