// A pointer to rows of threadgroup memory.
// >>> run(32) == np.arange(32).reshape(4, 8)[::-1].ravel()
#include <metal_stdlib>
using namespace metal;

[[max_total_threads_per_threadgroup(32)]]
kernel void f(device float* out, uint t [[thread_position_in_threadgroup]]) {
    threadgroup float tile[4][8];
    threadgroup float (*rows)[8] = tile;
    rows[t / 8][t % 8] = t;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[t] = tile[3 - t / 8][t % 8];
}
