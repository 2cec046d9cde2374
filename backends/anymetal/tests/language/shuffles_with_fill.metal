// Shuffles with values that fill.
// >>> processor_only()
// >>> x = np.arange(1, 33, dtype=f4)
// >>> run((32,), x, length=64, version="2.4") == [*x[3:], *-x[:3], *-x[-3:], *x[:-3]]
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
              uint i [[thread_position_in_grid]]) {
    y[i] = simd_shuffle_and_fill_down(x[i], -x[i], 3);
    y[32 + i] = simd_shuffle_and_fill_up(x[i], -x[i], 3);
}
