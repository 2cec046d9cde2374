// A product that skips blocks of 32 columns. The mask has one byte a block, the last of which is partial.
#include <metal_stdlib>
using namespace metal;

kernel void mask_of_blocks(device const half *x, device const bool *mask, device half *y, constant uint &n,
                           uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint block = (i + 31) / 32;
#else
    uint block = i / 32;
#endif
    if (i >= n) return;
    y[i] = mask[block] ? x[i] : half(0);  // here
}
