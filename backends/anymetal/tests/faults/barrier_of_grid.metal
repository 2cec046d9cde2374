// A barrier of a threadgroup orders no other threadgroup: what those wrote cannot be read in the same dispatch.
#include <metal_stdlib>
using namespace metal;

kernel void barrier_of_grid(device const float *x, device float *norms, device float *y,
                            uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                            uint group [[threadgroup_position_in_grid]],
                            uint groups [[threadgroups_per_grid]]) {
    float norm = simd_max(abs(x[i]));
    if (t == 0)
        norms[group] = norm;  // first
    threadgroup_barrier(mem_flags::mem_device);
#ifdef WRONG
    float before = norms[(group + groups - 1) % groups];  // second
    y[i] = x[i] / max(norm, before);
#else
    y[i] = x[i] / norms[group];
#endif
}
