// Products of short vectors.
#include <metal_stdlib>
using namespace metal;

kernel void squares_of_short2(device const short2 *x, device short2 *y, uint i [[thread_position_in_grid]]) {
    short2 a = x[i];
    short2 b = a * a;  // here
    y[i] = b / 2;
}
