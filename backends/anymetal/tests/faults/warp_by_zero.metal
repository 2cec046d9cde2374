// A projection divides by a depth, which is 0 for some texels.
#include <metal_stdlib>
using namespace metal;

kernel void warp_by_zero(texture2d<float> x [[texture(0)]], sampler s [[sampler(0)]],
                         texture2d<float, access::write> y [[texture(1)]], device const float *depth,
                         uint2 at [[thread_position_in_grid]]) {
    float d = depth[at.x];
#ifndef WRONG
    if (d == 0) {
        y.write(0, at);
        return;
    }
#endif
    float2 p = (float2(at) + 0.5f) * d / d / 4;
    y.write(x.sample(s, p), at);  // here
}
