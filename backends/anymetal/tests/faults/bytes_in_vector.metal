// Four bytes at once, at a row whose length is no multiple of four.
#include <metal_stdlib>
using namespace metal;

kernel void bytes_in_vector(device const uchar *x, device uint *y, constant uint &width,
                            uint row [[thread_position_in_grid]]) {
    uint sum = 0, k = 0;
#ifdef WRONG
    for (; k + 4 <= width; k += 4) {
        const uchar4 four = *(device const uchar4 *)(x + row * width + k);  // here
#else
    for (; k + 4 <= width; k += 4) {
        const packed_uchar4 packed = *(device const packed_uchar4 *)(x + row * width + k);
        const uchar4 four = packed;
#endif
        sum += four.x + four.y + four.z + four.w;
    }
    for (; k < width; k++)
        sum += x[row * width + k];
    y[row] = sum;
}
