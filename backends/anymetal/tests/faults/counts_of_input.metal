// Counters in a buffer that is bound for reading, changed by atomics.
#include <metal_stdlib>
using namespace metal;

kernel void counts_of_input(device const uint *earlier, device atomic_uint *counts, device const uchar *x,
                            uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    device atomic_uint *to = (device atomic_uint *)earlier;
#else
    device atomic_uint *to = counts;
#endif
    atomic_fetch_add_explicit(&to[x[i] % 4], 1u, memory_order_relaxed);  // here
}
