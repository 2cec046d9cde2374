// Differences of neighbours, with threadgroup memory of a length that the dispatch sets: one element is missing.
#include <metal_stdlib>
using namespace metal;

kernel void dispatched_length(device const float *x, device float *y, constant uint &n,
                              uint i [[thread_position_in_grid]], threadgroup float *line [[threadgroup(0)]],
                              uint t [[thread_position_in_threadgroup]],
                              uint size [[threads_per_threadgroup]]) {
    line[t] = x[i];
    if (t == size - 1)
        line[size] = x[min(i + 1, n - 1)];  // here
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float next = line[t + 1];  // here
    y[i] = next - line[t];
}
