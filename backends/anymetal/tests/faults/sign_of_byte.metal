// The sign of the lowest byte of a word. To shift bits of a signed number out of it is undefined before C++20.
#include <metal_stdlib>
using namespace metal;

kernel void sign_of_byte(device const int *words, device int *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    y[i] = (words[i] << 24) >> 24;  // here
#else
    y[i] = int(uint(words[i]) << 24) >> 24;
#endif
}
