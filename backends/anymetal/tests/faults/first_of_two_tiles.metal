// Two pieces of threadgroup memory in one dispatch. An index past the first may lie in the second, and is wrong.
#include <metal_stdlib>
using namespace metal;

kernel void first_of_two_tiles(device const half *x, device half *y, threadgroup half *keys [[threadgroup(0)]],
                               threadgroup half *values [[threadgroup(1)]],
                               uint t [[thread_position_in_threadgroup]],
                               uint size [[threads_per_threadgroup]]) {
    keys[t] = x[t];
    values[t] = 2 * x[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
#ifdef WRONG
    uint next = t + 1;
#else
    uint next = min(t + 1, size - 1);
#endif
    half key = keys[next];  // here
    y[t] = key + values[t];
}
