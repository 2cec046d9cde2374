// The mean of three texels of a row. At the edges there are only two.
#include <metal_stdlib>
using namespace metal;

kernel void blur_at_edge(texture2d<float> x [[texture(0)]], texture2d<float, access::write> y [[texture(1)]],
                         uint2 at [[thread_position_in_grid]]) {
#ifdef WRONG
    uint first = at.x - 1, last = at.x + 1;
#else
    uint first = at.x == 0 ? 0 : at.x - 1, last = min(at.x + 1, x.get_width() - 1);
#endif
    float sum = 0;
    for (uint i = first; i != last + 1; i++)
        sum += x.read(uint2(i, at.y)).x;  // here
    y.write(sum / float(last - first + 1), at);
}
