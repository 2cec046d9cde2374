// Lanes that leave a loop early meet again after it: lanes 0 .. k-1 have left by its turn k.
// >>> processor_only()
// >>> run(32, out=i4) == np.cumsum(32 - np.arange(32)) + 32000
#include <metal_stdlib>
using namespace metal;

[[max_total_threads_per_threadgroup(32)]]
kernel void f(device int* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {
    int sum = 0;
    for (uint k = 0; k <= lane; ++k) sum += simd_sum(1);
    out[lane] = sum + 1000 * simd_sum(1);
}
