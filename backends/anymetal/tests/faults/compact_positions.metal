// Stream compaction: each positive element takes the next place of the output. A plain counter gives places twice.
#include <metal_stdlib>
using namespace metal;

kernel void compact_positions(device const int *x, device atomic_uint *count, device int *kept,
                              uint i [[thread_position_in_grid]]) {
    if (x[i] <= 0) return;
#ifdef WRONG
    device uint *next = (device uint *)count;
    uint place = *next;  // first
    *next = place + 1;   // second
#else
    uint place = atomic_fetch_add_explicit(count, 1u, memory_order_relaxed);
#endif
    kept[place] = x[i];
}
