// Codes of three bits, some across two words. For those that are not, the second shift may be by all 32 bits.
#include <metal_stdlib>
using namespace metal;

kernel void codes_of_three_bits(device const uint *words, device uchar *codes, uint i [[thread_position_in_grid]]) {
    uint bit = i * 3 % 32, word = i * 3 / 32;
    uint code = words[word] >> bit;
#ifndef WRONG
    if (bit > 29)
#endif
    code |= words[word + 1] << (32 - bit);  // here
    codes[i] = uchar(code & 7);
}
