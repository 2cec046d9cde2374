// An image upside down. The first coordinate of a texture is the column.
#include <metal_stdlib>
using namespace metal;

kernel void swapped_coordinates(texture2d<half> x [[texture(0)]], texture2d<half, access::write> y [[texture(1)]],
                                uint2 at [[thread_position_in_grid]]) {
    uint row = x.get_height() - 1 - at.y;
#ifdef WRONG
    uint2 from = uint2(row, at.x);
#else
    uint2 from = uint2(at.x, row);
#endif
    y.write(x.read(from), at);  // here
}
