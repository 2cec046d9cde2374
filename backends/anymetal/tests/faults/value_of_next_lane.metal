// Differences of neighbours. The last lane of a simdgroup has no next one: its neighbour comes from the first.
#include <metal_stdlib>
using namespace metal;

kernel void value_of_next_lane(device const float *x, device float *y, uint i [[thread_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]]) {
#ifdef WRONG
    float next = simd_shuffle(x[i], ushort(lane + 1));  // here
#else
    float next = simd_shuffle(x[i], ushort((lane + 1) % 32));
#endif
    y[i] = next - x[i];
}
