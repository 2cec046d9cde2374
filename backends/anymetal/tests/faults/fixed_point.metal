// Fixed point with 16 fractional bits: what does not fit an int must be limited before the conversion.
#include <metal_stdlib>
using namespace metal;

kernel void fixed_point(device const half *x, device int *fixed, uint i [[thread_position_in_grid]]) {
    float scaled = float(x[i]) * 65536;
#ifndef WRONG
    scaled = clamp(scaled, -2147483648.0f, 2147483520.0f);
#endif
    fixed[i] = int(scaled);  // here
}
