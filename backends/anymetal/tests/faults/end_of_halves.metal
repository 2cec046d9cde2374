// Numbers are inserted in a sorted private array through pointers.
#include <metal_stdlib>
using namespace metal;

kernel void end_of_halves(device const half *x, device half *y, uint i [[thread_position_in_grid]]) {
    half top[9] = {};
    thread half *end = top + 9;
    thread half *p = top;
#ifdef WRONG
    while (p <= end)
#else
    while (p < end)
#endif
        *p++ = x[i];  // here
    y[i] = top[i];
}
