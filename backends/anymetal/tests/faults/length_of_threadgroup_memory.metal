// The length of threadgroup memory in a dispatch is a multiple of 16 bytes.
#include <metal_stdlib>
using namespace metal;

kernel void length_of_threadgroup_memory(device const ushort *x, device ushort *y,
                                         threadgroup ushort *line [[threadgroup(0)]],
                                         uint t [[thread_position_in_threadgroup]],
                                         uint size [[threads_per_threadgroup]]) {
    line[t] = x[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[t] = line[size - 1 - t];
}
