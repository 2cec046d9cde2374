// The offset of a row of the unfolded image is a 32-bit product that wraps around beyond 2**32 elements, without a
// sign to overflow.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_unfold(device uchar *unfolded, device uchar *first, constant uint &row, constant int &filter,
                       uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    device uchar *out = unfolded + row * filter;
#else
    device uchar *out = unfolded + size_t(row) * filter;
#endif
    out[i] = 1;
    *first = unfolded[1225771520u];  // where 399359 * 13824 is, modulo 2**32
}
