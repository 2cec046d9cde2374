// The number of elements behind a dimension, in int. The product passes 2**31 before the index is reduced again.
#include <metal_stdlib>
using namespace metal;

kernel void elements_of_tensor(device const char *x, device char *y, constant int *shape,
                               uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    int plane = shape[1] * shape[2] * shape[3];  // here
    int from = int(i) * (plane / shape[3]);
#else
    int plane = shape[1] * shape[2];
    int from = int(i) * plane;
#endif
    y[i] = x[from % 64];
}
