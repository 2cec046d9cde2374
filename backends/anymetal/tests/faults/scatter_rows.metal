// Scatter by a permutation: each place is written once. Indices that are halved address each place twice.
#include <metal_stdlib>
using namespace metal;

kernel void scatter_rows(device const half *x, device const uint *order, device half *y,
                         uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint to = order[i] / 2;
#else
    uint to = order[i];
#endif
    y[to] = x[i];  // first, second
}
