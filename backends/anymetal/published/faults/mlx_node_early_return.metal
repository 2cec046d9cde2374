// Columns behind the last one return, and the rest of their threadgroup waits for them in each step of the loop.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_node_early_return(device const float *x, device float *y, constant uint &columns,
                                  uint2 t [[thread_position_in_threadgroup]]) {
    threadgroup float chunk[32];
#ifdef WRONG
    if (t.y >= columns) return;
#endif
    float sum = 0;
    for (uint step = 0; step < 2; step++) {
        if (t.y == 0) chunk[t.x] = x[t.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);  // here
        sum += simd_sum(chunk[t.x]);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (t.x == 0 && t.y < columns) y[t.y] = sum;
}
