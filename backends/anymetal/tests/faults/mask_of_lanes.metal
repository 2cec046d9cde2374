// A mask of the first n bits. A shift by all 32 bits is undefined.
#include <metal_stdlib>
using namespace metal;

kernel void mask_of_lanes(device const uint *words, device uint *counts, device const uint *lengths,
                          uint i [[thread_position_in_grid]]) {
    uint n = lengths[i];
#ifdef WRONG
    uint mask = (1u << n) - 1;  // here
#else
    uint mask = n < 32 ? (1u << n) - 1 : ~0u;
#endif
    counts[i] = popcount(words[i] & mask);
}
