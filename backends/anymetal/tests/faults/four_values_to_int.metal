// A vector of numbers, of which one is too large for an int.
#include <metal_stdlib>
using namespace metal;

kernel void four_values_to_int(device const float4 *x, device int4 *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    y[i] = int4(x[i]);  // here
#else
    y[i] = int4(clamp(x[i], -1e9f, 1e9f));
#endif
}
