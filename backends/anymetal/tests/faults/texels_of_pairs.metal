// Each threadgroup writes the columns that are its own.
#include <metal_stdlib>
using namespace metal;

kernel void texels_of_pairs(texture2d<float, access::write> y [[texture(0)]], uint i [[thread_position_in_grid]],
                            uint t [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
#ifdef WRONG
    uint column = group / 2 * 8 + t;
#else
    uint column = group * 8 + t;
#endif
    y.write(float(i), uint2(column, 0));  // first, second
}
