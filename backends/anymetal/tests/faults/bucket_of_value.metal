// The bucket of a value. A negative or infinite one has none, and its conversion to an unsigned integer is undefined.
#include <metal_stdlib>
using namespace metal;

kernel void bucket_of_value(device const float *x, device uint *buckets, constant float &width,
                            uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint bucket = min(uint(x[i] / width), 15u);  // here
#else
    uint bucket = uint(clamp(x[i] / width, 0.0f, 15.0f));
#endif
    buckets[i] = bucket;
}
