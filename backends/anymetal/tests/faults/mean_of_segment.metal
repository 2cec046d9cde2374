// Means of segments, in integers. An empty segment has no mean; a quotient of floats by 0 is defined.
#include <metal_stdlib>
using namespace metal;

kernel void mean_of_segment(device const int *sums, device const int *counts, device int *means,
                            device float *inverses, uint i [[thread_position_in_grid]]) {
    inverses[i] = 1.0f / float(counts[i]);
#ifndef WRONG
    if (counts[i] == 0) return;
#endif
    means[i] = sums[i] / counts[i];  // here
}
