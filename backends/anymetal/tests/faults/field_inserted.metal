// A field of eight bits goes into a word, at a place that may leave it less room.
#include <metal_stdlib>
using namespace metal;

kernel void field_inserted(device uint2 *words, device const uint *places, uint i [[thread_position_in_grid]]) {
    uint place = places[i];
#ifdef WRONG
    words[i] = insert_bits(words[i], uint2(255), place, 8);  // here
#else
    words[i] = insert_bits(words[i], uint2(255), place, min(8u, 32 - place));
#endif
}
