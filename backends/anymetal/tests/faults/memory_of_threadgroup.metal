// Two tiles of 64 x 65 floats are more than the 32768 bytes of a threadgroup; in half precision they fit.
#include <metal_stdlib>
using namespace metal;

#ifdef WRONG
typedef float element;
#else
typedef half element;
#endif

kernel void memory_of_threadgroup(device const float *x, device float *y, uint i [[thread_position_in_grid]],
                                  uint t [[thread_position_in_threadgroup]],
                                  uint size [[threads_per_threadgroup]]) {
    threadgroup element a[64 * 65], b[64 * 65];
    a[t] = element(x[i]);
    b[t] = element(2 * x[i]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = float(a[size - 1 - t] + b[size - 1 - t]);
}
