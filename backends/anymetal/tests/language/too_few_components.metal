// Apple's compiler takes fewer components than a vector has; the others are 0.
// >>> run((4,)) == [1, 2, 3, 0]
#include <metal_stdlib>
using namespace metal;

kernel void f(device float *y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    const float4 v = float4(float2(1, 2), 3.0f);
    y[i] = v[i];
}
