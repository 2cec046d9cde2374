// A search for the next set bit. A word of zeros has none, and the loop never ends.
#include <metal_stdlib>
using namespace metal;

kernel void loop_without_progress(device const uint *words, device uint *places, uint i [[thread_position_in_grid]]) {
    uint word = words[i], place = i;
#ifdef WRONG
    while ((word >> place % 32 & 1) == 0) place++;  // here
#else
    for (uint k = 0; k < 32 && (word >> place % 32 & 1) == 0; k++) place++;
#endif
    places[i] = place;
}
