// Vertical differences of an image, a row for each simdgroup, which reads the row of the next one, image after image.
#include <metal_stdlib>
using namespace metal;

#ifdef WRONG
#define BARRIER simdgroup_barrier(mem_flags::mem_threadgroup)
#else
#define BARRIER threadgroup_barrier(mem_flags::mem_threadgroup)
#endif

kernel void rows_of_next_simdgroup(device const half *x, device half *y, constant uint &images,
                                   uint t [[thread_position_in_threadgroup]],
                                   uint size [[threads_per_threadgroup]]) {
    threadgroup half rows[128];
    for (uint image = 0; image < images; image++) {
        half own = x[image * size + t];
        rows[t] = own;  // first
        BARRIER;
        half next = rows[(t + 32) % size];  // second
        y[image * size + t] = next - own;
        BARRIER;
    }
}
