// Neighbours write the two halves of a word, or one of them the whole word.
#include <metal_stdlib>
using namespace metal;

kernel void halves_of_words(device const ushort *x, device ushort *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    if (i % 64 == 0)
        *(device uint *)(y + i) = x[i];  // first
    else
#endif
    y[i] = x[i];  // second
}
