// Bytes of two words are moved to their places.
#include <metal_stdlib>
using namespace metal;

kernel void bytes_of_two_words(device const uint2 *x, device uint2 *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint2 by = uint2(i * 16, i * 8);
#else
    uint2 by = uint2(i * 8);
#endif
    uint2 word = x[i];
    y[i] = word << by;  // here
}
