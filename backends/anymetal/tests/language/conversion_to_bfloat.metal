// Ties to even, an overflow and NaN, on CPUs with an instruction for it and without one.
// >>> processor_only()
// >>> x = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0xBF807FFF, 0x7F7FFFFF, 0xFF800000, 0x7F800001], u4)
// >>> expected = [0x3F80, 0x3F82, 0x3F81, 0xBF80, 0x7F80, 0xFF80, 0x7FC0]
// >>> run((7,), x, out=u2, version="3.1", fast_math=False) == expected
#include <metal_stdlib>
using namespace metal;

kernel void f(constant float* x [[buffer(0)]], device bfloat* y [[buffer(1)]],
              uint i [[thread_position_in_grid]]) { y[i] = bfloat(x[i]); }
