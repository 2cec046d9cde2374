// The total of an inclusive prefix sum is in the last lane, unless that lane is past the end of the data.
#include <metal_stdlib>
using namespace metal;

kernel void broadcast_of_last_lane(device const uint *x, device uint *y, constant uint &n,
                                   uint i [[thread_position_in_grid]]) {
    if (i >= n) return;
    uint sum = simd_prefix_inclusive_sum(x[i]);
#ifdef WRONG
    y[i] = simd_broadcast(sum, 31);  // here
#else
    y[i] = simd_max(sum);
#endif
}
