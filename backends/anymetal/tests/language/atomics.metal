// The other atomics.
// >>> x = integers(11, -1000, 1000, 1024).astype(i4)
// >>> bits = np.bitwise_or.reduce(x & 255), np.bitwise_and.reduce(x | 256), np.bitwise_xor.reduce(x)
// >>> start = np.array([-(2**31), 2**31 - 1, 0, -1, 0, 0, 0, 0], i4)
// >>> run(1024, x, out=start) == [x.max(), x.min(), *bits, -x.sum(), 2048, 77]
#include <metal_stdlib>
using namespace metal;

kernel void all(device const int* x [[buffer(0)]], device metal::atomic_int* out [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
    atomic_fetch_max_explicit(&out[0], x[i], memory_order_relaxed);
    atomic_fetch_min_explicit(&out[1], x[i], memory_order_relaxed);
    atomic_fetch_or_explicit(&out[2], x[i] & 255, memory_order_relaxed);
    atomic_fetch_and_explicit(&out[3], x[i] | 256, memory_order_relaxed);
    atomic_fetch_xor_explicit(&out[4], x[i], memory_order_relaxed);
    atomic_fetch_sub_explicit(&out[5], x[i], memory_order_relaxed);
    int expected = atomic_load_explicit(&out[6], memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&out[6], &expected, expected + 2, memory_order_relaxed,
                                                  memory_order_relaxed)) {}
    if (i == 5) atomic_exchange_explicit(&out[7], 77, memory_order_relaxed);
}
