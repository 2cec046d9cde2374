// The size of the selected axis is passed where the function expects the number of axes: dimensions and strides are
// read behind their ends.
#include <metal_stdlib>
using namespace metal;

uint strided(uint i, uint axes, device const uint *dims, device const uint *strides) {
    uint at = 0;
    for (uint d = 0; d < axes; d++) {
        uint axis = axes - 1 - d;
        at += i % dims[axis] * strides[axis];  // here
        i /= dims[axis];
    }
    return at;
}

kernel void candle_index_select(device const float *x, device const uint *dims, device const uint *strides,
                                device float *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint axes = dims[0];
#else
    uint axes = 2;
#endif
    y[i] = x[strided(i, axes, dims, strides)];
}
