// The sum of five channels, in two slices of four. The last three of the second slice belong to no channel.
#include <metal_stdlib>
using namespace metal;

kernel void padding_channels(texture2d_array<half> x [[texture(0)]], texture2d<half, access::write> y [[texture(1)]],
                             uint2 at [[thread_position_in_grid]]) {
    half4 first = x.read(at, 0), second = x.read(at, 1);
    half sum = first.x + first.y + first.z + first.w + second.x;
#ifdef WRONG
    sum += second.y + second.z + second.w;
#endif
    y.write(sum, at);
}
