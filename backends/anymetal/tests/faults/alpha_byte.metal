// Pixels of four bytes, composed in threadgroup memory byte by byte. One byte of the vector is left out.
#include <metal_stdlib>
using namespace metal;

kernel void alpha_byte(device const uchar *red, device const uchar *green, device uchar4 *pixels,
                       uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                       uint size [[threads_per_threadgroup]]) {
    threadgroup uchar4 line[64];
    threadgroup uchar *bytes = (threadgroup uchar *)&line[t];
    bytes[0] = red[i];
    bytes[1] = green[i];
    bytes[2] = 0;
#ifndef WRONG
    bytes[3] = 255;
#endif
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uchar4 pixel = line[size - 1 - t];  // here
    pixels[i] = pixel / 2;
}
