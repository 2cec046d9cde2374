// A product of 16 x 16 by four simdgroups, one 8 x 8 matrix each, whose operands all simdgroups copy together.
#include <metal_stdlib>
using namespace metal;

kernel void matrix_of_simdgroups(device const float *a, device const float *b, device float *c,
                                 uint t [[thread_position_in_threadgroup]],
                                 uint simd [[simdgroup_index_in_threadgroup]]) {
    threadgroup float tile_a[16 * 16], tile_b[16 * 16];
    for (uint k = t; k < 256; k += 128) {
        tile_a[k] = a[k];  // first
        tile_b[k] = b[k];  // first
    }
#ifdef WRONG
    simdgroup_barrier(mem_flags::mem_threadgroup);
#else
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    uint row = simd / 2 * 8, column = simd % 2 * 8;
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0);
    for (uint k = 0; k < 16; k += 8) {
        simdgroup_float8x8 left, right;
        simdgroup_load(left, tile_a + row * 16 + k, 16);      // second
        simdgroup_load(right, tile_b + k * 16 + column, 16);  // second
        simdgroup_multiply_accumulate(sum, left, right, sum);
    }
    simdgroup_store(sum, c + row * 16 + column, 16);
}
