// A private vector of which one component is set.
#include <metal_stdlib>
using namespace metal;

kernel void one_component_set(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    float4 v;
    v.x = x[i];
#ifdef WRONG
    y[i] = v.y;  // here
#else
    y[i] = v.x;
#endif
}
