// A component of vectors of three, which have the size of four: the data is packed.
#include <metal_stdlib>
using namespace metal;

#ifdef WRONG
typedef float3 Point;
#else
typedef packed_float3 Point;
#endif

kernel void height_of_points(device const Point *points, device float *heights,
                             uint i [[thread_position_in_grid]]) {
    heights[i] = points[i].y;  // here
}
