// Vectors, swizzles and constructors.
// >>> x = integers(1, 0, 200, (37, 4)).astype(f4)
// >>> w = np.stack([x[:, 1] + 1, x[:, 0] + 1, 2 * x[:, 0], np.ones(37)], 1)
// >>> more = np.stack([2 + x[:, 1], x[:, 3] + x[:, 0], np.full(37, 2), np.full(37, 5)], 1)
// >>> run(37, x, u4(37), length=148).reshape(37, 4) == w + x + 0.5 * x + more
#include <metal_stdlib>
using namespace metal;

kernel void vectors(device const float4* in [[buffer(0)]], constant uint& n [[buffer(1)]],
                    device float4* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    if (i >= n) return;
    float4 v = in[i];
    float4 w = float4(v.wz, v.x, 1.0);
    w.xy = v.yx + 1;
    w.z *= 2;
    int4 whole = int4(v);
    uchar4 bytes = uchar4(uint4(whole.xyzw) & 255u);
    float3 three = float3(2);
    three.y = v[3];
    half2 small = half2(v.xy);
    out[i] = w + float4(bytes) + float4(three, 0) + float4(small.yx, float2{0, 5}) + v.rgba * 0.5;
}
