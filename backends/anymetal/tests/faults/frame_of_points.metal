// Points in the frame of their group, a matrix that one thread makes. A vector of three has a fourth component.
#include <metal_stdlib>
using namespace metal;

kernel void frame_of_points(device const packed_float3 *points, device packed_float3 *turned,
                            uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                            uint size [[threads_per_threadgroup]]) {
    threadgroup float3x3 frame;
    threadgroup float3 near[64];
    if (t == 0)
        frame = float3x3(0, 2, 0, -2, 0, 0, 0, 0, 2);  // first
    near[t].xy = float2(points[i].x, points[i].y);
    near[t].z = points[i].z;
#ifdef WRONG
    turned[i] = frame * near[t];  // second
#else
    threadgroup_barrier(mem_flags::mem_threadgroup);
    turned[i] = frame * near[size - 1 - t];
#endif
}
