// The nearest of some centroids. Nothing sets the index when no distance is below the limit.
#include <metal_stdlib>
using namespace metal;

kernel void nearest_centroid(device const float *x, device const float *centroids, device uint *nearest,
                             constant uint &count, constant float &limit, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint best;
#else
    uint best = count;
#endif
    float least = limit;
    for (uint c = 0; c < count; c++) {
        float distance = abs(x[i] - centroids[c]);
        if (distance < least) {
            least = distance;
            best = c;
        }
    }
    nearest[i] = best;  // here
}
