// The threads of a matrix lie in several threadgroups, but only a threadgroup barrier orders the product and its next
// use.
#include <metal_stdlib>
using namespace metal;

kernel void torch_orgqr(device const float *x, device float *product, device float *y,
                        uint i [[thread_position_in_grid]], uint n [[threads_per_grid]],
                        uint t [[thread_position_in_threadgroup]]) {
    product[i] = 2 * x[i];  // first
    threadgroup_barrier(mem_flags::mem_device);
#ifdef WRONG
    y[i] = product[n - 1 - i];  // second
#else
    y[i] = product[i - t + 31 - t];
#endif
}
