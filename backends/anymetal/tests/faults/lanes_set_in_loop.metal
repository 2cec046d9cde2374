// A private vector is set in a loop, the last component is not.
#include <metal_stdlib>
using namespace metal;

kernel void lanes_set_in_loop(device const float *x, device float4 *y, uint i [[thread_position_in_grid]]) {
    float4 v;
#ifdef WRONG
    for (int k = 0; k < 3; k++)
#else
    for (int k = 0; k < 4; k++)
#endif
        v[k] = x[i];
    y[i] = v;  // here
}
