// Weights that a switch sets, one of them not in all of its cases.
#include <metal_stdlib>
using namespace metal;

kernel void weights_of_mode(device const int *modes, device float *y, uint i [[thread_position_in_grid]]) {
    float weights[2];
    switch (modes[i]) {
    case 0:
        weights[0] = 1;
        weights[1] = 2;
        break;
    default:
        weights[0] = 2;
#ifndef WRONG
        weights[1] = 1;
#endif
    }
    y[i] = weights[0] + weights[1];  // here
}
