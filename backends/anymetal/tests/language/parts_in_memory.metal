// Pointers and references to columns of matrices, elements of arrays and components of packed vectors in any memory.
// >>> run(1, np.arange(8, dtype=f4), length=16)[:12] == [1, 7, 30, 4, 5, 6, 40, 8, 9, 41, 40, 0]
#include <metal_stdlib>
using namespace metal;

struct A { float2x2 m; array<float2, 2> a; packed_float3 p; };
constant float2x2 table = float2x2(float2(1, 2), float2(3, 4));
void set(device float2 *p, device float2 &r) { p->x = 30, r.y = 7; }
float read(threadgroup const float2 *p) { return p->y; }
kernel void f(constant float2x2 *u [[buffer(0)]], device A *x [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    threadgroup float2x2 w;
    if (i != 0) return;
    for (int k = 0; k < 11; k++) ((device float *)x)[k] = k + 1;
    set(&(*x).m[1], x->m[0]);
    constant float2 *c = &table[1];
    const constant float2 &d = u[1][1];
    device float2 &e = x->a[1];
    w[0] = e;
    e = 40;
    x->a.back() = float2(7, 8);
    x->a[1].x = e.x + 33;
    device float *z = &x->p[1];
    *z = 41, x->p[2] = 40;
    float sum = 0;
    for (device float2 &v : x->a) sum += v.x; // 5 and 40
    w[1] = float2(2, 22);
    threadgroup float2 *columns = &w[1];
    device float *rest = &x->p[2] + 1;
    *rest = sum + read(columns) + columns->x + read(&w[0]) - c->y - d.x - 67;
}
