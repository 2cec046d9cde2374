// A reduction in threadgroup memory.
// >>> x = integers(6, -100, 100, 1000).astype(f4)
// >>> run(1000, x, u4(1000), length=4) == np.pad(x, (0, 24)).reshape(4, 256).sum(1)
#include <metal_stdlib>
using namespace metal;

[[max_total_threads_per_threadgroup(256)]]
kernel void reduce(device const float* x [[buffer(0)]], constant uint& n [[buffer(1)]],
                   device float* out [[buffer(2)]],
                   uint t [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
                   uint i [[thread_position_in_grid]], uint size [[threads_per_threadgroup]]) {
    threadgroup float tile[256];
    tile[t] = i < n ? x[i] : 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint step = size / 2; step > 0; step /= 2) {
        if (t < step) tile[t] += tile[t + step];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (t == 0) out[group] = tile[0];
}
