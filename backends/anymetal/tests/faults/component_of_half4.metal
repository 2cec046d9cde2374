// The first of four numbers, read as a component of a vector.
#include <metal_stdlib>
using namespace metal;

kernel void component_of_half4(device const half *x, device half *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    device const half *p = x + 3 * i;
#else
    device const half *p = x + 4 * i;
#endif
    y[i] = ((device const half4 *)p)->x;  // here
}
