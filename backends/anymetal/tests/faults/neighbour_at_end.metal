// Differences of neighbours. The last lane has none; what the first shuffle brings it is used by nobody.
#include <metal_stdlib>
using namespace metal;

kernel void neighbour_at_end(device const float *x, device float *y, uint i [[thread_position_in_grid]],
                             uint n [[threads_per_grid]]) {
    float unused = simd_shuffle_down(x[i], 1);
#ifdef WRONG
    float next = simd_shuffle_down(x[i], 1);  // here
#else
    float next = simd_shuffle(x[i], ushort(min(i + 1, n - 1)));
#endif
    y[i] = next - x[i];
    (void)unused;
}
