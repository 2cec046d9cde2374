// A remainder of vectors by a stride that is 0.
#include <metal_stdlib>
using namespace metal;

kernel void remainder_of_index(device const int2 *x, device int2 *y, constant int2 &n,
                               uint i [[thread_position_in_grid]]) {
    int2 a = x[i];
    y[i] = a % n;  // here
}
