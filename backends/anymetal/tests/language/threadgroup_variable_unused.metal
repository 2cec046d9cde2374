// A threadgroup variable that is not used.
// >>> run(64) == np.arange(64)
#include <metal_stdlib>
using namespace metal;

constant bool shared = false;
[[max_total_threads_per_threadgroup(32)]]
kernel void f(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    threadgroup float tile[32];
    if (shared) {
        tile[i % 32] = 1.0f;
    }
    out[i] = float(i);
}
