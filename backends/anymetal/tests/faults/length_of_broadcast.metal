// The position in an operand that repeats. Its length may be 0, which stands for a scalar.
#include <metal_stdlib>
using namespace metal;

kernel void length_of_broadcast(device const float *x, device float *y, constant uint &length,
                                uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint from = i % length;  // here
#else
    uint from = i % max(length, 1u);
#endif
    y[i] = x[from];
}
