// Errors with the other sign. The lowest number of a type has no opposite.
#include <metal_stdlib>
using namespace metal;

kernel void opposite_of_lowest(device const int2 *x, device int2 *y, device const int2 *shifts,
                               uint i [[thread_position_in_grid]]) {
    int2 error = x[i];
#ifdef WRONG
    y[i] = -error;  // here
#else
    y[i] = select(-max(error, -2147483647), 0, error == 0);
#endif
    device const int2 *by = shifts + i;
    y[i] = y[i] >> *by;
}
