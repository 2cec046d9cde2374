// A gather with the pitch of another array: far from the buffer, possibly inside another one.
#include <metal_stdlib>
using namespace metal;

kernel void stride_of_another_array(device const float *x, device const float *first, device const float *second,
                                    device float *y, constant uint &pitch, constant uint &other_pitch,
                                    uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    float value = x[i * other_pitch];  // here
#else
    float value = x[i * pitch];
#endif
    y[i] = value + first[i * other_pitch] + second[i * other_pitch];
}
