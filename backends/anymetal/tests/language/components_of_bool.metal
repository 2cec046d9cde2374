// clang's comparisons of vectors have -1 for true, and those of half have vectors of short.
// >>> run((1,), np.array([1, 2, 3, 4, 4, 3, 2, 1], f4), length=3, version="3.1") == [112, 1111, 11]
#include <metal_stdlib>
using namespace metal;

struct S { bool4 mask; };
bool4 above(half4 v) { return v > half(2); }
float first(float4 b) { return b.x; }
kernel void f(device const float4* p, device float* out) {
    const float4 v = p[0], w = p[1];
    bool4 b = v > 2, rows[2];
    auto c = v < w;
    S s;
    s.mask = v >= w;
    rows[1] = bool4(float4(0.5));
    b.x |= true;
    out[0] = b.x + b[3] + c.y * 10 + float((v > w).w) * 100;
    out[1] = s.mask.w + rows[1].z * 10 + above(half4(v)).w * 100 + first(v) * 1000;
    out[2] = all(rows[1] == bool4(true)) + int2(b.zw).y * 10 + any(c != bool4(1, 1, 0, 0)) * 100;
}
