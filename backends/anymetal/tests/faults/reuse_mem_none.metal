// Memory is overwritten after a barrier with mem_none, which lets all reads finish in practice, not by the letter.
#include <metal_stdlib>
using namespace metal;

#ifdef WRONG
#define FLAGS mem_flags::mem_none
#else
#define FLAGS mem_flags::mem_threadgroup
#endif

kernel void reuse_mem_none(device const float *x, device const float *y, device float *products,
                           uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                           uint size [[threads_per_threadgroup]]) {
    threadgroup float tile[128];
    tile[t] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float other = tile[size - 1 - t];  // first
    threadgroup_barrier(FLAGS);
    tile[t] = y[i];  // second
    threadgroup_barrier(mem_flags::mem_threadgroup);
    products[i] = other * tile[size - 1 - t];
}
