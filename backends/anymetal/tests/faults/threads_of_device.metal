// No device runs a threadgroup of 2048 threads.
#include <metal_stdlib>
using namespace metal;

kernel void threads_of_device(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    y[i] = max(x[i], 0.0f);
}
