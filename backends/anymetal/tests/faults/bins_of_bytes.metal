// A histogram in the texels of a row: with one byte a texel, atomic functions have no format for it.
#include <metal_stdlib>
using namespace metal;

kernel void bins_of_bytes(texture2d<uint, access::read_write> bins [[texture(0)]], uint i [[thread_position_in_grid]]) {
    bins.atomic_fetch_add(uint2(i % 8, 0), uint4(1));  // here
}
