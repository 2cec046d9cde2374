// Without fast math NaN and infinity are kept.
// >>> processor_only()
// >>> x = np.array([np.nan, np.inf, 1], f4)
// >>> run((3,), x, fast_math=False) == [1, 2, 0]
// >>> not np.array_equal(run((3,), x), [1, 2, 0])
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
              uint i [[thread_position_in_grid]]) {
    y[i] = isnan(x[i]) ? 1 : isinf(x[i]) ? 2 : x[i] + 1e8f - 1e8f;
}
