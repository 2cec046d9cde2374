// A counting sort of keys. Its counters are integers: there is no NaN that would show that they start undefined.
#include <metal_stdlib>
using namespace metal;

kernel void ranks_of_keys(device const uchar *keys, device uint *ranks, uint t [[thread_position_in_threadgroup]],
                          uint size [[threads_per_threadgroup]]) {
    threadgroup uint counts[16];
#ifndef WRONG
    if (t < 16) counts[t] = 0;
#endif
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t == 0)
        for (uint k = 0; k < size; k++)
            counts[keys[k] % 16]++;  // here
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint rank = 0;
    for (uint k = 0; k < keys[t] % 16; k++) rank += counts[k];
    ranks[t] = rank;
}
