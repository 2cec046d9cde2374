// A function returns a larger struct of which one branch sets a part.
#include <metal_stdlib>
using namespace metal;

struct statistics { float sum; float square; float most; float least[4]; };
static statistics of(float x) {
    statistics m;
    m.sum = x;
    m.square = x;
    m.most = x;
#ifndef WRONG
    for (int k = 0; k < 4; k++) m.least[k] = x;
#else
    for (int k = 0; k < 3; k++) m.least[k] = x;
#endif
    return m;
}
kernel void part_of_result(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    statistics m = of(x[i]);
    y[i] = m.sum + m.square + m.least[3];  // here
}
