// The attribute promises at most 128 threads in a threadgroup, and the dispatch has 256.
#include <metal_stdlib>
using namespace metal;

#ifdef WRONG
#define THREADS 128
#else
#define THREADS 256
#endif

[[max_total_threads_per_threadgroup(THREADS)]]
kernel void threads_of_pipeline(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    y[i] = x[i] + simd_max(x[i]);
}
