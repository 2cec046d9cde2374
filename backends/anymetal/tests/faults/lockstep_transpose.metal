// A simdgroup reverses its 32 values through its own part of threadgroup memory, round after round.
#include <metal_stdlib>
using namespace metal;

kernel void lockstep_transpose(device const float *x, device float *y, constant uint &rounds,
                               uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                               uint simd [[simdgroup_index_in_threadgroup]],
                               uint size [[threads_per_grid]]) {
    threadgroup float rows[4][32];
    threadgroup float *row = rows[simd];
    for (uint round = 0; round < rounds; round++) {
        row[lane] = x[round * size + i];  // second
        simdgroup_barrier(mem_flags::mem_threadgroup);
        y[round * size + i] = row[31 - lane];  // first
#ifndef WRONG
        simdgroup_barrier(mem_flags::mem_threadgroup);
#endif
    }
}
