// Moments in a struct, of which a branch sets the second only for long rows.
#include <metal_stdlib>
using namespace metal;

struct Moments {
    float mean, square;
};

static void moments(device const float *x, uint n, thread Moments &m) {
    m.mean = 0;
#ifndef WRONG
    m.square = 0;
#endif
    for (uint k = 0; k < n; k++)
        m.mean += x[k] / n;
    if (n > 1)
        m.square = 0;
    for (uint k = 0; n > 1 && k < n; k++)
        m.square += x[k] * x[k] / n;
}

kernel void moments_of_row(device const float *x, device const uint *lengths, device float *y,
                           uint row [[thread_position_in_grid]]) {
    Moments m;
    moments(x + row * 4, lengths[row], m);
    const Moments copy = m;  // here
    y[row] = copy.square - copy.mean * copy.mean;  // here
}
