// Sums of vectors of integers that lie in buffers. Those without a sign wrap, also of 8 and 16 bits: they are not promoted.
#include <metal_stdlib>
using namespace metal;

kernel void sums_in_buffers(device const int4 *x, device int4 *y, device const ushort4 *words, device uchar *counts,
                            uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    y[i] = x[2 * i] + x[2 * i + 1];  // here
#else
    y[i] = addsat(x[2 * i], x[2 * i + 1]);
#endif
    ushort4 hash = words[i] * 31 + words[i];
    hash = hash + hash;
    hash.xy += 40000;
    counts[i] += uchar(hash.x);
    counts[i] += 200;
    counts[i]++;
}
