// A product of simdgroup matrices, of which one is loaded only by some simdgroups.
#include <metal_stdlib>
using namespace metal;

kernel void matrix_never_loaded(device const float *a, device const float *b, device float *c,
                                uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    simdgroup_float8x8 left, right, product;
    simdgroup_load(left, a, 8);
#ifdef WRONG
    if (simdgroup == 0)
#endif
    simdgroup_load(right, b, 8);
    simdgroup_multiply(product, left, right);  // here
    simdgroup_store(product, c + simdgroup * 64, 8);
}
