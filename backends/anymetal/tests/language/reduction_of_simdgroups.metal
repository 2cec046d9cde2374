// A reduction of two levels, with simdgroups.
// >>> x = integers(9, -100, 100, 2048).astype(f4)
// >>> run(2048, x, length=4) == x.reshape(4, 512).sum(1)
#include <metal_stdlib>
using namespace metal;

[[max_total_threads_per_threadgroup(512)]]
kernel void reduce(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                   uint i [[thread_position_in_grid]], uint group [[threadgroup_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
                   uint simds [[simdgroups_per_threadgroup]]) {
    threadgroup float partial[32];
    float sum = simd_sum(x[i]);
    if (lane == 0) partial[simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd == 0) {
        sum = simd_sum(lane < simds ? partial[lane] : 0.0f);
        if (lane == 0) out[group] = sum;
    }
}
