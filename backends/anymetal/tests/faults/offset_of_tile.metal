// The place of a tile, in a vector of two coordinates times two strides.
#include <metal_stdlib>
using namespace metal;

kernel void offset_of_tile(device const float *x, device float *y, constant int2 &stride,
                           uint i [[thread_position_in_grid]]) {
    int2 at = int2(int(i) * 32768, int(i));
#ifdef WRONG
    int2 place = at * stride;  // here
#else
    int2 place = int2(at.x % 4, at.y) * int2(1, stride.y);
#endif
    y[i] = x[(place.x + place.y) & 63];
}
