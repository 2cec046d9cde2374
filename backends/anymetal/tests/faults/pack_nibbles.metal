// Two quantized values share a byte. A thread for each value loses one of the two; a thread for each byte does not.
#include <metal_stdlib>
using namespace metal;

kernel void pack_nibbles(device const float *x, device uchar *packed, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uchar q = uchar(clamp(x[i], 0.0f, 15.0f));
    packed[i / 2] |= i % 2 ? q << 4 : q;  // first, second
#else
    if (i % 2) return;
    uchar low = uchar(clamp(x[i], 0.0f, 15.0f)), high = uchar(clamp(x[i + 1], 0.0f, 15.0f));
    packed[i / 2] = uchar(low | high << 4);
#endif
}
