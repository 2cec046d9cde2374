// A lambda sets what it captures for some values only.
#include <metal_stdlib>
using namespace metal;

kernel void result_of_lambda(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    float r;
    auto set = [&](float v) {
#ifdef WRONG
        if (v > 3) r = v;
#else
        r = v;
#endif
    };
    set(x[i]);
    y[i] = r;  // here
}
