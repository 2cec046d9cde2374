// Bits are counted in words of 32. The buffer ends after 30 bytes: only half of its last word exists.
#include <metal_stdlib>
using namespace metal;

kernel void last_byte(device const uchar *bits, device uint *counts, constant uint &n,
                      uint i [[thread_position_in_grid]]) {
    uint word = 0;
#ifdef WRONG
    word = *(device const uint *)(bits + 4 * i);  // here
#else
    for (uint k = 0; k < 4; k++)
        if (4 * i + k < n) word |= uint(bits[4 * i + k]) << 8 * k;
#endif
    counts[i] = popcount(word);
}
