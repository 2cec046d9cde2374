// A component of a vector of bool has a byte in a buffer; in registers it has the four of a comparison.
// >>> rows = np.array([[0, 0, 0, 0], [0, 1, 0, 1]], bool)
// >>> run(1024, np.array([1, 0], bool), rows)[:2] == [1, 1101]
// >>> run(1024, np.array([0, 1], bool), rows)[:2] == [10010, 11110]
#include <metal_stdlib>
using namespace metal;

kernel void f(constant bool2& a [[buffer(0)]], device const bool4* b [[buffer(1)]], device float* out [[buffer(2)]],
              uint i [[thread_position_in_grid]]) {
    const bool2 both = a;
    const bool4 row = b[i % 2];
    out[i] = a.x + 10 * both.y + 100 * any(b[i % 2]) + 1000 * row.w + select(float2(0), float2(10000), a).y;
}
