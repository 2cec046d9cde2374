// Four codes are written byte by byte and read as a word: legal for the thread's own bytes, a race for those of others.
#include <metal_stdlib>
using namespace metal;

kernel void bytes_as_words(device const uint *x, device uint *words, uint i [[thread_position_in_grid]],
                           uint t [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]]) {
    threadgroup uchar codes[4 * 64];
    for (uint k = 0; k < 4; k++)
        codes[4 * t + k] = uchar(x[i] >> 8 * (3 - k));  // first
#ifdef WRONG
    uint from = size - 1 - t;
#else
    uint from = t;
#endif
    words[i] = *(threadgroup uint *)(codes + 4 * from);  // second
}
