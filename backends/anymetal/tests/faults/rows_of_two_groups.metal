// Two threadgroups share a row of 128 elements, and both add to its sum.
#include <metal_stdlib>
using namespace metal;

kernel void rows_of_two_groups(device const float *x, device float *sums, device float *halves,
                               uint i [[thread_position_in_grid]], uint group [[threadgroup_position_in_grid]],
                               uint t [[thread_position_in_threadgroup]],
                               uint simd [[simdgroup_index_in_threadgroup]]) {
    threadgroup float partial[2];
    float sum = simd_sum(x[i]);
    if (t % 32 == 0) partial[simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t == 0) {
#ifdef WRONG
        sums[group / 2] += partial[0] + partial[1];  // first, second
#else
        halves[group] = partial[0] + partial[1];
#endif
    }
}
