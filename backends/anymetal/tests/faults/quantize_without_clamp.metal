// Quantization to eight bits. A value outside of the range of the type loses its upper bits, silently.
#include <metal_stdlib>
using namespace metal;

kernel void quantize_without_clamp(device const float *x, device uchar *q, constant float &scale,
                                   uint i [[thread_position_in_grid]]) {
    int level = int(rint(x[i] / scale)) + 128;
#ifdef WRONG
    q[i] = level;  // here
#else
    q[i] = clamp(level, 0, 255);
#endif
}
