// For five axes and more the fallback decomposes the index over the wrong axes: it leaves out the last one, and reads
// behind the array.
#include <metal_stdlib>
using namespace metal;

kernel void candle_strided_reduce(device const float *x, device const uint *dims, device const uint *strides,
                                  device float *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint axis = 3;
#else
    uint axis = 4;
#endif
    uint left = i, at = 0;
    for (; axis > 0; axis--) {
        at += left % dims[axis] * strides[axis];
        left /= dims[axis];
    }
    at += left * strides[0];
    y[i] = x[at];  // here
}
