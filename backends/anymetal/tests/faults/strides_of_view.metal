// A view with a negative stride begins at its last element.
#include <metal_stdlib>
using namespace metal;

kernel void strides_of_view(device const float *x, device float *y, constant int &stride, constant uint &n,
                            uint i [[thread_position_in_grid]]) {
    if (i >= n)
        return;
#ifdef WRONG
    device const float *first = x + n;
#else
    device const float *first = x + n - 1;
#endif
    y[i] = first[int(i) * stride];  // here
}
