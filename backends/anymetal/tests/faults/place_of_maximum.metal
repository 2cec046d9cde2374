// A function sets a pointer of its caller to the larger of two numbers: of its copies, or of the numbers themselves.
#include <metal_stdlib>
using namespace metal;

#ifdef WRONG
static void larger(float a, float b, thread const float *thread &place) {
#else
static void larger(thread const float &a, thread const float &b, thread const float *thread &place) {
#endif
    place = a > b ? &a : &b;
}

kernel void place_of_maximum(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    float a = x[2 * i], b = x[2 * i + 1];
    thread const float *place;
    larger(a, b, place);
    y[i] = *place;  // here
}
