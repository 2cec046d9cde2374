// A mask that fades out between two radii, which may be equal.
#include <metal_stdlib>
using namespace metal;

kernel void edges_of_step(device const float2 *radii, device float *mask, uint i [[thread_position_in_grid]]) {
    float2 r = radii[i];
    float distance = float(i);
#ifdef WRONG
    mask[i] = 1 - smoothstep(r.x, r.y, distance);  // here
#else
    mask[i] = r.x < r.y ? 1 - smoothstep(r.x, r.y, distance) : step(distance, r.x);
#endif
}
