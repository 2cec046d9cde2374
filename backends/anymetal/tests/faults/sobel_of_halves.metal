// A difference of columns. A half has no odd numbers above 2048.
#include <metal_stdlib>
using namespace metal;

kernel void sobel_of_halves(texture2d<half> x [[texture(0)]], texture2d<half, access::write> y [[texture(1)]],
                            uint2 at [[thread_position_in_grid]]) {
#ifdef WRONG
    half column = half(at.x);
    uint2 before = uint2(max(column - 1, half(0)), half(at.y));  // here
#else
    float column = float(at.x);
    uint2 before = uint2(max(column - 1, 0.0f), float(at.y));
#endif
    y.write(x.read(at) - x.read(before), at);
}
