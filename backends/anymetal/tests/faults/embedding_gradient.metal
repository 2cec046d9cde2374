// The gradient of an embedding: tokens that occur twice add to the same row.
#include <metal_stdlib>
using namespace metal;

kernel void embedding_gradient(device const uint *tokens, device const float *gradient, device float *table,
                               uint2 at [[thread_position_in_grid]], uint2 grid [[threads_per_grid]]) {
    device float *row = table + tokens[at.y] * grid.x;
    float own = gradient[at.y * grid.x + at.x];
#ifdef WRONG
    row[at.x] += own;  // first, second
#else
    atomic_fetch_add_explicit((device atomic_float *)row + at.x, own, memory_order_relaxed);
#endif
}
