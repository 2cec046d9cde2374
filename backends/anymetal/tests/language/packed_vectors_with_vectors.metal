// Packed vectors with vectors, and names for vectors with arguments.
// >>> x = np.arange(24, dtype=f4)
// >>> expected = ((2 * x + x + 1 - x / 2) * x).reshape(8, 3) + np.array([1, 4, 2])
// >>> run(8, x, length=24) == expected.ravel()
#include <metal_stdlib>
using namespace metal;

template <typename T> using vec2 = vec<T, 2>;
template <typename T> struct Base { float run(float v) const { return static_cast<const thread T *>(this)->go(v); }
};
struct Next : Base<Next> { float go(float v) const { return v + 1; } };
kernel void f(device const packed_float3 *x, device packed_float3 *out, uint i [[thread_position_in_grid]]) {
    if (i >= 8) return;
    packed_float3 p = x[i];
    vec2<int> a(1, 2), b(3);
    float3 q = p * 2.0f + x[i] + float3(1) - p / float3(2);
    q = a.x ? q : x[i], p = a.x ? x[i] : float3(0);
    out[i] = q * p;
    out[i] += float3(a.x, Next().run(b.y), a.y);
}
