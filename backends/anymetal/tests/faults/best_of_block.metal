// The best of some candidates is kept by its address. The variable of a candidate ends with its block.
#include <metal_stdlib>
using namespace metal;

kernel void best_of_block(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    float first = x[i];
    thread const float *best = &first;
#ifdef WRONG
    {
        float scaled = x[i] * 2;
        if (scaled > first) best = &scaled;
    }
#else
    float scaled = x[i] * 2;
    if (scaled > first) best = &scaled;
#endif
    y[i] = *best;  // here
}
