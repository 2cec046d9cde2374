// The output of a batch is advanced by the columns, not by rows times columns: part of it is never written.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_batched_qmv(device const float *x, device float *y, uint3 at [[thread_position_in_grid]]) {
    const uint columns = 2, rows = 3;
    float value = x[(at.z * rows + at.y) * columns + at.x];
#ifdef WRONG
    y += at.z * columns;
#else
    y += at.z * rows * columns;
#endif
    y[at.y * columns + at.x] = value;  // first, second
}
