// A helper function that takes the value of a lane, which the last simdgroup does not have.
#include <metal_stdlib>
using namespace metal;

template <typename T> static T sum_of_two(T x) {
#ifdef WRONG
    return x + simd_shuffle_xor(x, ushort(16));  // here
#else
    return x + simd_shuffle_xor(x, ushort(8));
#endif
}

kernel void sum_with_lane_above(device const half *x, device half *y, uint i [[thread_position_in_grid]]) {
    y[i] = sum_of_two(x[i]);
}
