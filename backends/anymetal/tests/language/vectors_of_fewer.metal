// A vector from vectors with too few components, as sources that Apple's compiler takes have it: the rest is 0.
// >>> run(1, np.array([5, 6], f4), length=8) == [5, 6, 1, 0, 7, 5, 6, 0]
// >>> refused("float4(x[0], 1.0f)", "float4(x[0], x[0], 1.0f)", "as many components")
#include <metal_stdlib>
using namespace metal;

kernel void f(device const float2 *x [[buffer(0)]], device float4 *out [[buffer(1)]]) {
    out[0] = float4(x[0], 1.0f);
    out[1] = float4(uint4(uint(7), uint2(x[0])));
}
