// A strided copy. The strides are in the constant address space, one for each of the dimensions.
#include <metal_stdlib>
using namespace metal;

kernel void strides_in_constant(device const float *x, device float *y, constant uint *shape,
                                constant uint *strides, constant uint &dimensions,
                                uint i [[thread_position_in_grid]]) {
    uint from = 0, rest = i;
    for (uint d = dimensions; d > 0; d--) {
#ifdef WRONG
        uint stride = strides[d];  // here
#else
        uint stride = strides[d - 1];
#endif
        from += rest % shape[d - 1] * stride;
        rest /= shape[d - 1];
    }
    y[i] = x[from];
}
