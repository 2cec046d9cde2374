// A counter of bytes in threadgroup memory beside one of words.
#include <metal_stdlib>
using namespace metal;

kernel void count_of_mixed_width(device const uchar *x, device uint *y, uint i [[thread_position_in_threadgroup]]) {
    threadgroup uchar seen[64];
    threadgroup atomic_uint count;
    if (i == 0)
        atomic_store_explicit(&count, 0, memory_order_relaxed);
    seen[i] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
#ifdef WRONG
    seen[x[i] % 64] += 1;  // first, second
#else
    seen[i] += x[i] % 2;
#endif
    if (x[i] % 2)
        atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = seen[i] + atomic_load_explicit(&count, memory_order_relaxed);
}
