// Dequantization with a table of 16 values. The sign is the fifth bit of the code, and no part of the index.
#include <metal_stdlib>
using namespace metal;

constant float codebook_values[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 64};

kernel void codebook(device const uchar *codes, device float *y, uint i [[thread_position_in_grid]]) {
    uchar code = codes[i];
#ifdef WRONG
    uint index = code & 31;
#else
    uint index = code & 15;
#endif
    float value = codebook_values[index];  // here
    y[i] = code & 16 ? -value : value;
}
