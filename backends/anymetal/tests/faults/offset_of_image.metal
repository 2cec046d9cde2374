// The offset of an image in a batch of more than 2**31 elements, computed with 32-bit integers.
#include <metal_stdlib>
using namespace metal;

kernel void offset_of_image(device const uchar *x, device uchar *y, constant int &height, constant int &width,
                            uint image [[thread_position_in_grid]]) {
#ifdef WRONG
    int offset = int(image) * height * width;  // here
#else
    long offset = long(image) * height * width;
#endif
    y[image] = x[offset] + 1;  // here
}
