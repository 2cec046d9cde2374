// Components of a private float2 and of an element of threadgroup memory are set one by one.
#include <metal_stdlib>
using namespace metal;

kernel void halves_of_float2(device const float *x, device float2 *y, uint i [[thread_position_in_threadgroup]]) {
    threadgroup half2 shared[64];
    float2 own[2];
    own[0].x = x[i];
#ifndef WRONG
    own[0].y = x[i] + 1;
#endif
    shared[i].y = half(x[i]);
    shared[i].x = half(x[i] + 2);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    own[1] = float2(shared[63 - i]);
    y[i] = own[0] + own[1];  // here
}
