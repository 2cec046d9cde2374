// Blocks of 18 bytes: a scale of two bytes and 16 codes. Words of four bytes in them are not aligned.
#include <metal_stdlib>
using namespace metal;

kernel void words_in_blocks(device const uchar *blocks, device uint *sums, uint i [[thread_position_in_grid]]) {
    device const uchar *codes = blocks + 18 * i + 2;
    uint sum = 0;
    for (uint k = 0; k < 16; k += 4) {
#ifdef WRONG
        uint word = *(device const uint *)(codes + k);  // here
#else
        device const ushort *pair = (device const ushort *)(codes + k);
        uint word = pair[0] | uint(pair[1]) << 16;
#endif
        sum += (word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24);
    }
    sums[i] = sum;
}
