// The largest magnitude of a block, by atomic maxima on the bits of floats that are not negative.
#include <metal_stdlib>
using namespace metal;

kernel void maximum_read_early(device const float *x, device char *q, device float *scales,
                               uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                               uint block [[threadgroup_position_in_grid]]) {
    threadgroup atomic_uint largest;
    if (t == 0) atomic_store_explicit(&largest, 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_max_explicit(&largest, as_type<uint>(abs(x[i])), memory_order_relaxed);  // first
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    float scale = *(threadgroup float *)&largest / 127;  // second
    q[i] = char(rint(x[i] / scale));
    if (t == 0) scales[block] = scale;
}
