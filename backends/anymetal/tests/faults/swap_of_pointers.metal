// Two halves of shared memory in turn, by pointers that are exchanged.
#include <metal_stdlib>
using namespace metal;

kernel void swap_of_pointers(device const float *x, device float *y, threadgroup float *both [[threadgroup(0)]],
                             uint i [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
    threadgroup float *from = both, *to = both + n;
    from[i] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint round = 0; round < 3; round++) {
        to[i] = from[(i + 1) % n];  // first, second
#ifdef WRONG
        if (round != 1)
#endif
        threadgroup_barrier(mem_flags::mem_threadgroup);
        threadgroup float *other = from;
        from = to;
        to = other;
    }
    y[i] = from[i];
}
