// Maxima of 64-bit integers, which no SIMD function has: by shuffles, that must run where every lane is active.
#include <metal_stdlib>
using namespace metal;

kernel void maximum_of_long(device const long *x, device long *out, uint i [[thread_position_in_grid]],
                            uint lane [[thread_index_in_simdgroup]],
                            uint simd [[simdgroup_index_in_threadgroup]],
                            uint simds [[simdgroups_per_threadgroup]]) {
    threadgroup long shared[32];
    long own = x[i];
    for (ushort step = 16; step > 0; step /= 2) {
        uint2 other = simd_shuffle_xor(as_type<uint2>(own), step);
        own = max(own, as_type<long>(other));
    }
    if (lane == 0) shared[simd] = own;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd > 0) return;
    own = lane < simds ? shared[lane] : LONG_MIN;
#ifdef WRONG
    if (lane < simds)
#endif
        for (ushort step = 16; step > 0; step /= 2) {
            uint2 other = simd_shuffle_xor(as_type<uint2>(own), step);  // here
            own = max(own, as_type<long>(other));
        }
    if (lane == 0) *out = own;
}
