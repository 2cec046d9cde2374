// The column of an attention mask is computed in a short: behind key 32,767 the mask is read at a wrong place.
#include <metal_stdlib>
using namespace metal;

kernel void mlx_mask_column_in_short(device const float *mask, device float *scores, constant int &base,
                                     uint lane [[thread_position_in_grid]]) {
#ifdef WRONG
    const short column = base + int(lane);  // here
#else
    const int column = base + int(lane);
#endif
    scores[lane] = mask[column];  // here
}
