// One component is written through a pointer to vectors.
#include <metal_stdlib>
using namespace metal;

kernel void component_written(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    if (i >= 4) return;
#ifdef WRONG
    device float2 *p = (device float2 *)(y + 3 * i);
#else
    device float2 *p = (device float2 *)(y + 4 * i);
#endif
    p[0].y = x[i];  // here
}
