// The mean of neighbours in a row. The result is a texture of its own.
#include <metal_stdlib>
using namespace metal;

kernel void image_blur_in_place(texture2d<float> x [[texture(0)]], texture2d<float, access::write> y [[texture(1)]],
                          uint2 at [[thread_position_in_grid]]) {
    uint next = min(at.x + 1, x.get_width() - 1);
    float other = x.read(uint2(next, at.y)).x;  // first
    y.write((x.read(at).x + other) / 2, at);  // second
}
