// The best score and its index of a group, in structs that the threads halve.
#include <metal_stdlib>
using namespace metal;

struct Best {
    float score;
    ushort index;
};

kernel void best_of_threads(device const float *x, device uint *y, uint i [[thread_position_in_grid]],
                            uint t [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]],
                            uint group [[threadgroup_position_in_grid]]) {
    threadgroup Best best[64];
    best[t].score = x[i];
    best[t].index = ushort(t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = n / 2; k > 0; k /= 2) {
        if (t < k && best[t + k].score > best[t].score)  // first
            best[t] = best[t + k];  // second
#ifndef WRONG
        threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    }
    if (t == 0)
        y[group] = best[0].index;
}
