// The sum of a private array in a function, which gets its length.
#include <metal_stdlib>
using namespace metal;

static float sum(thread const float *terms, int n) {
    float total = 0;
    for (int k = 0; k < n; k++)
        total += terms[k];  // here
    return total;
}

kernel void terms_of_sum(device const float *x, device const int *lengths, device float *y,
                         uint i [[thread_position_in_grid]]) {
    float terms[8];
    for (int k = 0; k < 8; k++)
        terms[k] = x[k];
#ifdef WRONG
    y[i] = sum(terms, lengths[i] + 1);
#else
    y[i] = sum(terms, lengths[i]);
#endif
}
