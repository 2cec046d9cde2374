// The intermediate result is stored into an input, which is declared const.
#include <metal_stdlib>
using namespace metal;

kernel void normalize_in_input(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    float norm = sqrt(simd_sum(x[i] * x[i]));
#ifdef WRONG
    device float *scratch = (device float *)x;
#else
    device float *scratch = y;
#endif
    scratch[i] = x[i] / norm;  // here
    y[i] = scratch[i] + 1;
}
