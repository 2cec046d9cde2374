// A gather whose arguments are a struct. A rank above the length of its arrays reads the member behind.
#include <metal_stdlib>
using namespace metal;

struct Arguments {
    uint rank;
    uint shape[4];
    uint strides[4];
    uint offset;
};

kernel void shape_in_struct(device const float *x, device float *y, constant Arguments &a,
                            uint i [[thread_position_in_grid]]) {
    uint from = a.offset, rest = i;
#ifdef WRONG
    for (uint d = 0; d <= a.rank; d++) {
#else
    for (uint d = 0; d < a.rank; d++) {
#endif
        uint length = a.shape[d];  // here
        from += rest % length * a.strides[d];  // here
        rest /= length;
    }
    y[i] = x[from];
}
