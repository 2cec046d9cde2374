// A conversion in a template, for which a number is too large.
#include <metal_stdlib>
using namespace metal;

template <typename T> static T converted(float x) {
    return static_cast<T>(x);  // here
}

kernel void value_to_byte(device const float *x, device uchar *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    y[i] = converted<uchar>(x[i]);
#else
    y[i] = converted<uchar>(clamp(x[i], 0.0f, 255.0f));
#endif
}
