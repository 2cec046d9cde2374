// The absolute value of a code, whose smallest has none.
#include <metal_stdlib>
using namespace metal;

kernel void magnitude_of_code(device const int *x, device int *y, uint i [[thread_position_in_grid]]) {
    y[i] = abs(x[i]);  // here
}
