// The fields of a packed word, some of which have bits in the next word.
#include <metal_stdlib>
using namespace metal;

kernel void bits_of_field(device const uint *words, device uint *fields, uint i [[thread_position_in_grid]]) {
    uint first = i * 6, bit = first % 32;
#ifdef WRONG
    fields[i] = extract_bits(words[first / 32], bit, 6);  // here
#else
    uint low = min(6u, 32 - bit);
    fields[i] = extract_bits(words[first / 32], bit, low);
    if (low < 6) fields[i] |= extract_bits(words[first / 32 + 1], 0, 6 - low) << low;
#endif
}
