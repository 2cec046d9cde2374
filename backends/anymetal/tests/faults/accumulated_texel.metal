// A sum over the rows of an image, which begins with what the texture holds.
#include <metal_stdlib>
using namespace metal;

kernel void accumulated_texel(texture2d<float> x [[texture(0)]], texture2d<float, access::read_write> y [[texture(1)]],
                              uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    float sum = y.read(uint2(i, 0)).x;  // here
#else
    float sum = 0;
#endif
    for (uint row = 0; row < x.get_height(); row++)
        sum += x.read(uint2(i, row)).x;
    y.write(sum, uint2(i, 0));
}
