// Inclusive prefix sum by doubling. Two buffers in turn need one barrier a step; one buffer needs two.
#include <metal_stdlib>
using namespace metal;

kernel void scan_two_buffers(device const uint *x, device uint *sums,
                             uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) {
    threadgroup uint line[2][128];
    uint from = 0;
    line[0][t] = x[i];
    for (uint step = 1; step < 128; step *= 2) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
#ifdef WRONG
        uint to = from;
#else
        uint to = 1 - from;
#endif
        uint left = 0;
        if (t >= step) left = line[from][t - step];  // first
        line[to][t] = line[from][t] + left;          // second
        from = to;
    }
    sums[i] = line[from][t];
}
