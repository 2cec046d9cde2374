// The length of a threadgroup variable may be a product. It is shared all the same: the `*` is no pointer.
// >>> x = np.arange(64, dtype=f4)
// >>> run(64, x) == x[::-1]
#include <metal_stdlib>
using namespace metal;

[[max_total_threads_per_threadgroup(64)]]
kernel void turned(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                   uint t [[thread_position_in_threadgroup]]) {
    threadgroup float4 tile[2 * 32 / 4];
    threadgroup float* values = (threadgroup float*)tile;
    values[t] = x[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[t] = values[63 - t];
}
