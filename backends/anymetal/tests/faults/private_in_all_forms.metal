// Legal ways to set private vectors, arrays and structs.
#include <metal_stdlib>
using namespace metal;

struct pair { float2 v; float w[3]; };
struct tail { float3 v; };
template <class T> T made(float x) { T v; v.x = x; v.yz = T(x).yz; return v; }
static pair of(float x) { pair p; p.v = x; for (int k = 0; k < 3; k++) p.w[k] = x; return p; }
static tail tail_of(float x) { tail t; t.v = float3(x); return t; }
static pair either(float x) { pair p, q; p.v = x; p.w[0] = p.w[1] = p.w[2] = 1; q = p; if (x > 5) return p; return q; }
static void set(thread float2 &v) { v = 1; }
static void add(thread float *a, int n) { for (int k = 0; k < n; k++) a[k] = k; }
static void decode(device const float *x, uint i, thread float4 &v) { v = x[i]; }
template <void (*function)(device const float *, uint, thread float4 &)>
static float through(device const float *x, uint i) {
    float4 v;
    function(x, i, v);
    auto set = [](thread float2 &a) { a = 2; };
    float2 w;
    set(w);
    return v.x + w.y + dot(w, w);
}
kernel void private_in_all_forms(device const float *x, device float *y, uint i [[thread_position_in_threadgroup]]) {
    threadgroup float t[64];
    float4 a;
    float2 b, c, d[2];
    float3 e = made<float3>(x[i]);
    float f[5], g[2][3], s;
    half4 h;
    thread float4 &ref = a;
    auto fill = [&](float v) { c.x = v; c.y = v + 1; s = v; };
    fill(x[i]);
    set(b);
    set(d[0]), d[1] = d[0].yx;
    ref = float4(b, c);
    add(f, 5);
    for (int j = 0; j < 2; j++) add(g[j], 3);
    h.xy = half2(b), h.zw = h.xy;
    pair p = of(x[i]), q = either(x[i]);
    tail z = tail_of(x[i]);
    int2 n;
    do { n = int2(1, 2); n.x++; } while (n.x < 2);
    float2x2 m;
    m[0] = b, m[1] = c;
    float2 mv = m * b;
    float own = a.x + e.y + f[4] + g[1][2] + float(h.w) + p.w[2] + q.w[1] + z.v.z + n.x + d[1].x + s + mv.x;
    t[i] = own + through<decode>(x, i);  // first
#ifndef WRONG
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    y[i] = t[63 - i];  // second
}
