// A row is doubled in place, and turned around in each threadgroup.
#include <metal_stdlib>
using namespace metal;

kernel void texels_of_neighbours(texture2d<float, access::read_write> x [[texture(0)]], device float *y,
                                 uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) {
    x.write(2 * x.read(uint2(i, 0)), uint2(i, 0));  // first
#ifdef WRONG
    threadgroup_barrier(mem_flags::mem_device);
#else
    threadgroup_barrier(mem_flags::mem_texture);
#endif
    y[i] = x.read(uint2(i - t + 63 - t, 0)).x;  // second
}
