// Casts to vectors of bool are true for all but 0, casts of them are 0 and 1, and names for them are such.
// >>> run(1, np.array([0.5, 0, 2, -1], f4), length=8) == [101, 101, 101, 101, 1001, 1001, 10, 4]
#include <metal_stdlib>
using namespace metal;

typedef bool4 mask;
using lanes = vec<bool, 4>;
struct S { thread bool4 *p; mask stored; };
template <uint N> vec<bool, N> same(vec<bool, N> v) { return (vec<bool, N>)quad_broadcast((vec<ushort, N>)v, 0); }
template <class T, class U> T first(U v) { return T(v); }
float code(bool4 b) { return b.x + 10 * b.y + 100 * b.z; }
kernel void f(device const float4 *x [[buffer(0)]], device float *out [[buffer(1)]]) {
    bool4 a = (bool4)x[0], b = static_cast<bool4>(x[0]);
    mask c = mask(x[0]);
    lanes d = (lanes)x[0];
    S s = {&a, d};
    out[0] = code(*s.p), out[1] = code(b), out[2] = code(c), out[3] = code(s.stored);
    const ushort4 n = (ushort4)d, m = (vec<ushort, 4>)bool4(true, false, true, true);
    out[4] = n.x + 10 * n.y + 1000 * n.z, out[5] = m.x + 10 * m.y + 1000 * m.z;
    out[6] = code(bool4(false, (bool)same(bool4(x[0])).z, false, false));
    out[7] = float(sizeof(S::stored));
}
