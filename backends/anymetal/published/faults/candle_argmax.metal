// Of equal maxima the one that the reduction meets last is taken, not the first of the row.
#include <metal_stdlib>
using namespace metal;

kernel void candle_argmax(device const float *x, device uint *y, uint lane [[thread_position_in_grid]]) {
    float value = x[lane];
    uint at = lane;
    for (ushort step = 16; step > 0; step /= 2) {
        float other = simd_shuffle_xor(value, step);
        uint place = simd_shuffle_xor(at, step);
#ifdef WRONG
        bool replaces = other >= value;
#else
        bool replaces = other > value || (other == value && place < at);
#endif
        value = replaces ? other : value;
        at = replaces ? place : at;
    }
    if (lane == 0) *y = at;
}
