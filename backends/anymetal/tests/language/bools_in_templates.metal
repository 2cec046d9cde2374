// A vector of bool has a type of its own: in templates, overloads and traits, also as the result of a comparison.
// >>> out = run(1, np.array([0.5, 0.25, 1, 0], f4), length=32, version="3.1")
// >>> out[:8] == [1, 0, 1, 0, 2, 12, 1, 0]
// >>> out[8:16] == [4, 2, 4, 4, 41, 42, 41, 41]
// >>> out[16:24] == [1, 2, 1, 0, 1, 2, 3, 2]
// >>> out[24:] == [1, 1, 1, 1, 13, 8, 11, 41]
#include <metal_stdlib>
using namespace metal;

template <class T> T make(float4 v) { return T(v); }
template <class T> T like(T, float4 v) { return T(v); }
template <class T> void set(thread T &to, float4 v) { to = T(v); }
template <class T> struct S {
    T v;
    vec<T, 2> pair;
    S(T a) : v(a) { pair = vec<T, 2>(a, a); }
};
template <class T> struct trait { enum { number = 3 }; };
template <> struct trait<bool4> { enum { number = 1 }; };
template <> struct trait<int4> { enum { number = 2 }; };
int which(bool3) { return 1; }
int which(int3) { return 2; }
template <class T> auto less(T a, T b) { return a < b; }
template <class T> float of(T v) { return float4(v).x + 10 * sizeof(T) + (v[0] == -1); }
template <int N> float count(vec<bool, N> v) { return v[0] + 10 * N; }
kernel void f(device const float4 *x, device float *out) {
    const float4 v = x[0];
    bool4 a = make<bool4>(v), b = like(a, v.wwww), c;
    out[0] = a.x, out[1] = a.w, out[2] = like(a, v).x, out[3] = b.x, out[4] = make<int4>(v * 4).x;
    set(c, v);
    out[5] = a.x + 10 * all(c == a) + c.xy.y, out[6] = float4(make<bool4>(v)).x, out[7] = make<half4>(float4(b)).y;
    out[8] = sizeof(bool4), out[9] = sizeof(bool2), out[10] = sizeof(a), out[11] = alignof(vec<bool, 3>);
    out[12] = of(v > 0.1f), out[13] = of(a) + 1, out[14] = of(!b), out[15] = of(half4(v) > 0.1h);
    out[16] = which(bool3(true)), out[17] = which(int3(1)), out[18] = which(v.xyz > 1);
    out[19] = is_same<bool4, int4>::value, out[20] = trait<bool4>::number, out[21] = trait<int4>::number;
    out[22] = trait<float4>::number, out[23] = sizeof(S<bool>::pair);
    auto d = less(v, v + 1);
    out[24] = float4(d).x, out[25] = trait<decltype(d)>::number, out[26] = trait<decltype(v < 1)>::number;
    a.wy = d.xz;
    out[27] = a.w, out[28] = count(v.xy > 0.3f) - 9 + (v.xy > 0.3f).x, out[29] = sizeof(array<bool4, 2>);
    out[30] = as_type<uint>(bool4(true, true, false, false)) == 0x101u ? 11 : 0, out[31] = of(isinf(v) == bool4(false));
}
