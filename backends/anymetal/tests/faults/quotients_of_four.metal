// Four quotients at once, of which one has the divisor 0.
#include <metal_stdlib>
using namespace metal;

kernel void quotients_of_four(device const int4 *x, device int4 *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    y[i] = 8 / x[i];  // here
#else
    y[i] = 8 / max(x[i], 1);
#endif
}
