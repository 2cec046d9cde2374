// A guard lets the threads past the first 128 of a threadgroup return before the barriers of the others.
#include <metal_stdlib>
using namespace metal;

kernel void vllm_mlx_early_return(device const float *x, device float *y, uint t [[thread_position_in_threadgroup]]) {
    threadgroup float tile[128];
#ifdef WRONG
    if (t >= 128) return;
#endif
    if (t < 128) tile[t] = x[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);  // here
    if (t < 128) y[t] = tile[127 - t % 2];
}
