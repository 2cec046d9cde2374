// bfloat rounds to 8 bits: to nearest, ties to even.
// >>> processor_only()
// >>> x = np.array([1.0, -2.5, 0.015625, 300], f4)
// >>> exact = (x * 3 + 1 + f4(2**-7)).view(u4)
// >>> rounded = exact + 0x7FFF + (exact >> 16 & 1)
// >>> run((4,), (x.view(u4) >> 16).astype(u2), out=u2, version="3.1") == rounded >> 16
#include <metal_stdlib>
using namespace metal;

kernel void f(constant bfloat* x [[buffer(0)]], device bfloat* y [[buffer(1)]],
              uint i [[thread_position_in_grid]]) {
    float2 v = static_cast<float2>(bfloat2(x[i], bfloat(1.0f)));
    y[i] = static_cast<bfloat>(v.x * 3 + v.y + float(numeric_limits<bfloat>::epsilon()));
}
