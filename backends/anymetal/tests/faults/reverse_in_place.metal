// A row is reversed in place, with an index that runs backwards; each thread owns a pair.
#include <metal_stdlib>
using namespace metal;

kernel void reverse_in_place(device int *x, constant int &n, uint i [[thread_position_in_grid]]) {
    const int a = int(i), b = n - 1 - int(i);
#ifndef WRONG
    if (a < b) {
#endif
    const int low = x[a], high = x[b];  // second
    x[a] = high;  // first
    x[b] = low;   // first
#ifndef WRONG
    }
#endif
}
