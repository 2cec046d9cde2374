// A butterfly over the lanes, within a branch that only some lanes take. All must take part.
#include <metal_stdlib>
using namespace metal;

kernel void shuffle_in_branch(device const int *x, device int *y, constant uint &n,
                              uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
    int own = lane < n ? x[i] : 0;
#ifdef WRONG
    if (lane < n)
#endif
        own = max(own, simd_shuffle_xor(own, 16));  // here
    if (lane < n) y[i] = own;
}
