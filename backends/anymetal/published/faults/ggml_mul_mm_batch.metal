// The output of a batch of products starts at a 32-bit product of its number, rows and columns.
#include <metal_stdlib>
using namespace metal;

kernel void ggml_mul_mm_batch(device float *y, constant int &head, constant int &rows, constant int &columns,
                              uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    device float *batch = y + head * rows * columns;  // here
#else
    device float *batch = y + ulong(head) * rows * columns;
#endif
    batch[i] = 1;  // here
}
