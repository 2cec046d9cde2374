// A look at the length of a queue before taking a place. The length changes atomically, so the look must be atomic.
#include <metal_stdlib>
using namespace metal;

kernel void queue_peek(device atomic_uint *length, device uint *queue, constant uint &capacity,
                       uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint used = *(device uint *)length;  // first
#else
    uint used = atomic_load_explicit(length, memory_order_relaxed);
#endif
    if (used >= capacity) return;
    uint place = atomic_fetch_add_explicit(length, 1u, memory_order_relaxed);  // second
    if (place < capacity) queue[place] = 1;
}
