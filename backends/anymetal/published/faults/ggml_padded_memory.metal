// The length of threadgroup memory that the host sets is no multiple of 16 bytes.
#include <metal_stdlib>
using namespace metal;

kernel void ggml_padded_memory(device const float *x, device float *y, threadgroup float *tile [[threadgroup(0)]],
                               uint i [[thread_position_in_grid]]) {
    tile[i] = x[i];
    y[i] = tile[i];
}
