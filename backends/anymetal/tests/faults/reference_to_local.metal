// A function returns a reference: to a variable of its own, or to the parameter that it got as one.
#include <metal_stdlib>
using namespace metal;

static thread float &clamped(thread float &x) {
#ifdef WRONG
    float limited = min(x, 1.0f);
#else
    thread float &limited = x;
    limited = min(x, 1.0f);
#endif
    return limited;
}

kernel void reference_to_local(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    float v = x[i];
    y[i] = clamped(v) * 2;  // here
}
