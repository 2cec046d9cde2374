// Assignments that are defaulted for address spaces, beside others, as those of matrices that SPIRV-Cross writes.
// >>> run(1, length=6) == [7, 2, 5, 10, 8, 2]
#include <metal_stdlib>
using namespace metal;

struct A {
    float v[2];
    A() thread = default;
    A(const device A &o) thread = default;
    A(const thread A &o) thread = default;
    thread A &operator=(float2 m) thread { v[0] = m.x, v[1] = m.y; return *this; }
    device A &operator=(float2 m) device { v[0] = m.x, v[1] = m.y; return *this; }
    thread A &operator=(const device A &o) thread = default;
    device A &operator=(const device A &o) device = default;
    device A &operator=(const thread A &) device = default;
    threadgroup A &operator=(const thread A &o) threadgroup = default;
    void operator=(const device A &) threadgroup = default;
};
kernel void f(device A *x [[buffer(0)]]) {
    threadgroup A w;
    A t;
    t = float2(1, 2);
    x[0] = t;
    x[1] = t;
    t = x[1];
    t.v[0] = 7;
    w = t;
    w = x[0];
    x[0] = (x[1] = t);
    x[1] = float2(5, 6);
    t = float2(8);
    x[1].v[1] = t.v[0] + w.v[1];
    t.v[1] = w.v[1];
    x[2] = t;
}
