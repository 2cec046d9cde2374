// A histogram with atomics in threadgroup memory and in a buffer.
// >>> x = integers(10, 0, 256, 5000).astype(np.uint8)
// >>> run(5000, x, u4(5000), out=np.zeros(16, u4)) == np.bincount(x % 16, minlength=16)
#include <metal_stdlib>
using namespace metal;

[[max_total_threads_per_threadgroup(128)]]
kernel void histogram(device const uchar* x [[buffer(0)]], constant uint& n [[buffer(1)]],
                      device atomic_uint* bins [[buffer(2)]], uint t [[thread_index_in_threadgroup]],
                      uint i [[thread_position_in_grid]]) {
    threadgroup atomic_uint mine[16];
    if (t < 16) atomic_store_explicit(&mine[t], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (i < n) atomic_fetch_add_explicit(&mine[x[i] % 16], 1u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t < 16) {
        uint count = atomic_load_explicit(&mine[t], memory_order_relaxed);
        atomic_fetch_add_explicit(&bins[t], count, memory_order_relaxed);
    }
}
