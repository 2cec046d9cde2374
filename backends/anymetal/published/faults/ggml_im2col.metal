// The offset of a window in the output of im2col is computed with 32-bit integers.
#include <metal_stdlib>
using namespace metal;

kernel void ggml_im2col(device const half *x, device half *y, constant int &window, constant int &length,
                        uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    int offset = window * length;  // here
#else
    long offset = long(window) * length;
#endif
    y[i] = x[offset + int(i)] + half(1);  // here
}
