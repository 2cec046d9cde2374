// A map of labels is enlarged. Integers are not mixed.
#include <metal_stdlib>
using namespace metal;

kernel void filter_of_labels(texture2d<uint> x [[texture(0)]], texture2d<uint, access::write> y [[texture(1)]],
                             uint2 at [[thread_position_in_grid]]) {
#ifdef WRONG
    constexpr sampler s(filter::linear);
#else
    constexpr sampler s(filter::nearest);
#endif
    y.write(x.sample(s, (float2(at) + 0.5f) / 8), at);  // here
}
