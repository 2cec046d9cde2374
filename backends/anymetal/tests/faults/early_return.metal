// Threads past the end of the row return, and the others wait for them. They must stay, without a store.
#include <metal_stdlib>
using namespace metal;

kernel void early_return(device const float *x, device float *sums, constant uint &n,
                         uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                         uint group [[threadgroup_position_in_grid]]) {
    threadgroup float partial[64];
#ifdef WRONG
    if (i >= n) return;
#endif
    partial[t] = i < n ? x[i] : 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // here
    if (t < 32) {
        float sum = simd_sum(partial[t] + (group * 64 + t + 32 < n ? partial[t + 32] : 0));
        if (t == 0) sums[group] = sum;
    }
}
