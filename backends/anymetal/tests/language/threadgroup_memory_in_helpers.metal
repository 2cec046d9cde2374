// Threadgroup memory in helpers.
// >>> run(128, out=i4) == np.tile(((64 - np.arange(64)) % 64) ** 2, 2)
#include <metal_stdlib>
using namespace metal;

void rotate_tile(threadgroup int* tile, threadgroup const int* from, uint t) { tile[t] = from[(t + 1) % 64]; }
[[max_total_threads_per_threadgroup(64)]]
kernel void rotated(device int* out [[buffer(0)]], uint t [[thread_index_in_threadgroup]],
                    uint i [[thread_position_in_grid]]) {
    threadgroup int a[64], b[64];
    threadgroup int* pointer = a;
    pointer[t] = int(t * t);
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    rotate_tile(b, a, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = b[63 - t];
}
