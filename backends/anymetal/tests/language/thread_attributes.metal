// The attributes of a thread.
// >>> i = np.arange(192)
// >>> t = i % 96
// >>> columns = [i, 0, 0, t, i // 96, 0, 96, 192, 2, t, t % 32, t // 32, 32, 32, 3, 0]
// >>> run(100, out=u2, length=192 * 16).reshape(192, 16) == np.stack([np.broadcast_to(c, 192) for c in columns], 1)
#include <metal_stdlib>
using namespace metal;

[[max_total_threads_per_threadgroup(96)]]
kernel void where(device ushort* out [[buffer(0)]], uint3 grid [[thread_position_in_grid]],
                  ushort inside [[thread_position_in_threadgroup]], uint2 group [[threadgroup_position_in_grid]],
                  uint size [[threads_per_threadgroup]], uint total [[threads_per_grid]],
                  uint groups [[threadgroups_per_grid]], ushort index [[thread_index_in_threadgroup]],
                  ushort lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
                  uint width [[threads_per_simdgroup]], uint execution [[thread_execution_width]],
                  uint simds [[simdgroups_per_threadgroup]]) {
    device ushort* row = out + 16 * grid.x;
    row[0] = grid.x; row[1] = grid.y; row[2] = grid.z; row[3] = inside; row[4] = group.x; row[5] = group.y;
    row[6] = size; row[7] = total; row[8] = groups; row[9] = index; row[10] = lane; row[11] = simd;
    row[12] = width; row[13] = execution; row[14] = simds; row[15] = 0;
}
