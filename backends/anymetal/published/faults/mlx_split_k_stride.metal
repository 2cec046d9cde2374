// The partial products of a batch are written with the stride of one partition, not of all.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_split_k_stride(device const float *x, device float *partial, uint i [[thread_position_in_grid]]) {
    const uint splits = 4;
    uint batch = i / splits, split = i % splits;
#ifdef WRONG
    partial[batch + split] = x[i];  // first, second
#else
    partial[batch * splits + split] = x[i];
#endif
}
