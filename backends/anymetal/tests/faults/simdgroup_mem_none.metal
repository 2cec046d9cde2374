// The lanes of a simdgroup exchange a 4 x 8 block. Its barrier needs the flag of the memory, as any other.
#include <metal_stdlib>
using namespace metal;

#ifdef WRONG
#define FLAGS mem_flags::mem_none
#else
#define FLAGS mem_flags::mem_threadgroup
#endif

kernel void simdgroup_mem_none(device const ushort *x, device ushort *y, uint i [[thread_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simd [[simdgroup_index_in_threadgroup]]) {
    threadgroup ushort blocks[2][32];
    blocks[simd][lane] = x[i];  // first
    simdgroup_barrier(FLAGS);
    y[i] = blocks[simd][lane % 8 * 4 + lane / 8];  // second
}
