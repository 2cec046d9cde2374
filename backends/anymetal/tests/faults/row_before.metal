// A number of the row before is added to each row. A pointer names that row, which ends with its turn of the loop.
#include <metal_stdlib>
using namespace metal;

kernel void row_before(device const float *x, device float *y, constant uint &n, uint i [[thread_position_in_grid]]) {
    float sum = 0;
    thread float *before = nullptr;
#ifndef WRONG
    float rows[2][4];
#endif
    for (uint k = 0; k < n; k++) {
        float last = before ? before[3] : 0;  // here
#ifdef WRONG
        float row[4];
#else
        thread float *row = rows[k % 2];
#endif
        for (uint c = 0; c < 4; c++) row[c] = x[(i * n + k) * 4 + c];
        sum += row[0] * last;
        before = row;
    }
    y[i] = sum;
}
