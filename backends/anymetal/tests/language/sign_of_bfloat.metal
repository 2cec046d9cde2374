// The sign bit of a bfloat beside its value.
// >>> x = (np.array([-2, -1, 1, 2], f4).view(u4) >> 16).astype(u2)
// >>> run(4, x, version="3.1") == [112, 111, 1, 2]
#include <metal_stdlib>
using namespace metal;

kernel void f(device const bfloat *x, device float *out, uint i [[thread_position_in_grid]]) {
    if (i >= 4) return;
    bfloat b = x[i];
    out[i] = float(b > bfloat(0) ? b : -b) + 10 * float(as_type<ushort>(b) >> 15) + 100 * (as_type<short>(b) < 0);
}
