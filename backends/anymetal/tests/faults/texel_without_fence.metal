// A thread adds two rows of an image to a third one, which it keeps in the texture.
#include <metal_stdlib>
using namespace metal;

kernel void texel_without_fence(texture2d<float> x [[texture(0)]], texture2d<float, access::read_write> y [[texture(1)]],
                                uint i [[thread_position_in_grid]]) {
    const uint2 at(i, 0);
    y.write(x.read(uint2(i, 0)), at);
#ifndef WRONG
    y.fence();
#endif
    y.write(y.read(at) + x.read(uint2(i, 1)), at);  // here
}
