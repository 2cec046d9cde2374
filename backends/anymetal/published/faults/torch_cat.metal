// The offset in a concatenation of more than 2**31 elements is a sum of 32-bit products; what it writes lies before
// the output.
#include <metal_stdlib>
using namespace metal;

kernel void torch_cat(device const char *x, device char *y, constant int &row, constant int &stride,
                      uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    int at = int(i) + row * stride;  // here
#else
    long at = int(i) + long(row) * stride;
#endif
    y[at] = x[i];  // here
}
