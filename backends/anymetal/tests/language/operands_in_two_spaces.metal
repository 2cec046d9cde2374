// `?:` of structs, matrices, vectors and numbers of which one lies in another address space than the other.
// >>> fr = np.arange(2, 10, dtype=u4).reshape(4, 2)
// >>> q = np.array([7, 8], u4)
// >>> a = run(2, fr, q, np.uint32(1), out=u4, length=26).reshape(13, 2)
// >>> a == [[2, 3], [1, 0], [7, 8], [1, 2], [6, 7], [5, 5], [1, 0], [4, 5], [16, 9], [3, 3], [5, 2], [1, 12], [8, 1]]
// >>> refused("i ? x : nullptr", "i ? x : w", "incompatible operand types|address space")
// >>> refused("Fr b = one()", "thread Fr &t = i ? x[i] : y[i]; Fr b = one()", "address space|cannot bind|binding")
#include <metal_stdlib>
using namespace metal;

struct Fr { uint v[2]; };
struct Kind { static constant uint seven = 7; enum { eight = 8 }; };
Fr one() { Fr r; r.v[0] = 1; r.v[1] = 0; return r; }
constant Fr C = {{1, 2}};
float2x2 turned(float2x2 m, bool is) { return is ? transpose(m) * 2.0f : m; }
kernel void f(device const Fr *x [[buffer(0)]], constant Fr &q [[buffer(1)]], constant uint &n [[buffer(2)]],
              device Fr *y [[buffer(3)]], uint i [[thread_position_in_grid]]) {
    threadgroup Fr w[2];
    threadgroup uint few[2], many[2];
    if (i != 0) return;
    w[0] = one(), few[0] = 5, many[0] = 6;
    Fr b = one(), d{{5, 5}};
    const Fr e = one();
    Fr r[13];
    r[0] = (i < n) ? x[i] : one();
    r[1] = n ? b : x[1];
    r[2] = (n == 1) ? q : e;
    r[3] = n ? C : w[0];
    r[4] = n ? x[2] : q;
    r[5] = i ? w[0] : d;
    r[6] = n ? w[0] : x[i];
    r[7] = i ? q : n > 1 ? C : n > 0 ? x[1] : d;
    const float2x2 m(1, 2, 3, 4), t = turned(m, n), u = turned(m, i);
    r[8] = Fr{{uint(t[0][1]) + 10 * (i ? 0 : 1), uint(u[1][1]) + few[0]}};
    device const Fr *p = i ? x : nullptr, *z = n ? nullptr : x;
    r[9] = Fr{{(i ? x[0].v[0] : 3), n ? 3 : q.v[1]}};
    threadgroup uint *g = i ? many : few;
    r[10] = Fr{{g[0], p || z ? 1u : n ? x[i].v[0] : few[0]}};
    (i ? b : d).v[0] = 12;
    (i ? y[0] : y[1]).v[0] = 1;
    device uint *h = &(i ? y[0].v[0] : y[1].v[0]);
    r[11] = Fr{{*h, d.v[0]}};
    float4 v = float4(1), s = i ? v : y[1].v[0] == 1 ? float4(C.v[0], 0, 0, 0) : v;
    r[12] = Fr{{n ? Kind::eight : Kind::seven, uint(n ? s.x : v[1])}};
    for (uint k = 0; k < 13; ++k) y[k] = r[k];
}
