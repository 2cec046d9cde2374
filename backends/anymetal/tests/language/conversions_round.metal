// A conversion to half or bfloat rounds under fast math, too, and half overflows to infinity.
// >>> x = np.array([1 / 3, 0.1, 70000, -100.1], f4)
// >>> h = np.array([1 / 3, 0.1, np.inf, -100.1], np.float16)
// >>> h = h.astype(f4)
// >>> b = ((x.view(u4) + 0x7FFF + (x.view(u4) >> 16 & 1)) & 0xFFFF0000).view(f4)
// >>> s = (h[[0, 1, 1, 3]].astype(np.float16) + h[[0, 1, 1, 3]].astype(np.float16)).astype(f4)
// >>> right = np.stack([h, h, b, 2 * h, h, h, s, b, h, h], 1)
// >>> run((4,), x, length=40, version="3.1").reshape(4, 10) == right
// >>> run((4,), x, length=40, version="3.1", fast_math=False).reshape(4, 10) == right
#include <metal_stdlib>
using namespace metal;

struct Weight { half value; };
half rounded(float x) { return x; }
template <class T> float through(float x) { T y = T(x); return y; }

kernel void f(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
              uint i [[thread_position_in_grid]]) {
    half h = half(x[i]);
    half4 v[2] = {half4(float4(x[i])), half4(x[i < 2 ? i : 1])};
    v[1] = i == 3 ? v[0] + v[0] : v[1] + v[1];
    Weight w = {half(x[i])};
    y[10 * i] = h;
    y[10 * i + 1] = float(half(x[i]));
    y[10 * i + 2] = float(bfloat(x[i]));
    y[10 * i + 3] = float(h) * 2.0f;
    y[10 * i + 4] = float4(v[0]).y;
    y[10 * i + 5] = through<half>(x[i]);
    y[10 * i + 6] = v[1].x;
    y[10 * i + 7] = through<bfloat>(x[i]);
    y[10 * i + 8] = w.value;
    y[10 * i + 9] = rounded(x[i]);
}
