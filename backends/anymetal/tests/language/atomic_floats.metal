// Atomic operations of floats; sums of integers are exact in any order.
// >>> processor_only()
// >>> x = integers(2, -99, 99, 500).astype(f4)
// >>> run((500,), x, out=np.zeros(5, f4), version="3.0") == [x.sum(), -x.sum(), x.max(), 0.5, x[4]]
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float* x [[buffer(0)]], device atomic<float>* y [[buffer(1)]],
              uint i [[thread_position_in_grid]]) {
    atomic_fetch_add_explicit(y, x[i], memory_order_relaxed);
    atomic_fetch_sub_explicit(y + 1, x[i], memory_order_relaxed);
    float old = atomic_load_explicit(y + 2, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(y + 2, &old, max(old, x[i]), memory_order_relaxed,
                                                  memory_order_relaxed));
    if (i == 3) atomic_store_explicit(y + 3, 0.5f, memory_order_relaxed);
    if (i == 4) atomic_exchange_explicit(y + 4, x[i], memory_order_relaxed);
}
