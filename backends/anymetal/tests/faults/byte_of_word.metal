// A byte is written by one simdgroup, the word that holds it is read by the other one.
#include <metal_stdlib>
using namespace metal;

kernel void byte_of_word(device uchar *x, device uint *y, uint i [[thread_position_in_threadgroup]]) {
    x[i * 4 + 1] = uchar(i);  // first
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_device);
#endif
    if (i == 63)
        y[0] = ((device uint *)x)[5];  // second
}
