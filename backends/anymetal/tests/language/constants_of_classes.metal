// Constants at file scope and in classes: members without `constexpr`, vectors with parentheses, matrices of lists.
// >>> run(1, length=14) == [2013265921 % 1000, 3.5, 0.25, 1.5, 0.5, 2, 3, 4, 0.75, 8, 5, 6, 3, 7]
// >>> refused("static constant float k = 3.5", "static float k = 3.5", "static|constant")
// >>> refused("float2x2(5)", "float2x2(5, 6)", "no matching|constructor")
#include <metal_stdlib>
using namespace metal;

struct Fp {
    static constant uint P = 15u * (1u << 27) + 1u;
    static constant float k = 3.5, powers[2] = {1.5, 0.25};
    uint v;
};
struct Pair {
    float a, b;
    constexpr Pair(float a, float b) : a(a), b(b) {}
};
constant float3 luma(.5f, 1.0f, 2.0f);
constant half2 few(3.0h);
constant float2x2 m = {{1.0f, 2.0f}, {3.0f, 4.0f}};
constant float2x2 both[2] = {{{1.0f, 2.0f}, {8.0f, 4.0f}}, float2x2(5)};
constant Pair pair{6, 1}, pairs[2] = {{1, 2}, {3, 4}};
constant Pair last(7, 0);
kernel void f(device float *out, uint i [[thread_position_in_grid]]) {
    if (i != 0) return;
    const half2x2 h = half2x2({0.299, 0.75}, {0.5, 1});
    out[0] = Fp::P % 1000, out[1] = Fp::k, out[2] = Fp::powers[1], out[3] = Fp::powers[0], out[4] = luma.x;
    out[5] = luma.z, out[6] = few.y, out[7] = m[1][1], out[8] = h[0].y, out[9] = both[0][1].x, out[10] = both[1][1][1];
    out[11] = pair.a, out[12] = pairs[1].a, out[13] = last.a;
}
