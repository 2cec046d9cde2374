// Sums of neighbours: the lanes of a simdgroup do not see each other's texels, even if they run in step.
#include <metal_stdlib>
using namespace metal;

kernel void texels_in_step(texture2d<float, access::read_write> x [[texture(0)]], device float *y,
                           uint i [[thread_position_in_grid]]) {
    x.write(float(i), uint2(i, 0));  // first
#ifndef WRONG
    simdgroup_barrier(mem_flags::mem_texture);
#endif
    y[i] = x.read(uint2(i ^ 1, 0)).x;  // second
}
