// Pointers in arrays, pointers to columns of matrices, and copies of matrices between address spaces.
// >>> x = np.arange(16, dtype=f4)
// >>> u = np.arange(16, 32, dtype=f4)
// >>> run(1, x, u, length=8) == [5, 16, 7, 3, 21, 26, 18, 20]
#include <metal_stdlib>
using namespace metal;

struct U { float4x4 m; };
template <typename T, size_t N> struct fixed { T elements[N]; };
void set(thread float4 *p, thread float4 &r) { *p = 7, r = 3; }
kernel void f(device const float *x [[buffer(0)]], constant U &u [[buffer(1)]], device fixed<float, 8> *out [[buffer(2)]],
              uint i [[thread_position_in_grid]]) {
    threadgroup float4x4 w;
    if (i != 0) return;
    thread const device float *p[2];
    p[0] = x, p[1] = x + 4;
    float4x4 m, n(1.0f);
    m = u.m;
    w = u.m;
    set(&n[1], n[2]);
    w[1] = u.m[2].wzyx;
    thread float4 *columns = &m[0];
    out->elements[0] = p[1][1], out->elements[1] = columns[0].x, out->elements[2] = n[1].x, out->elements[3] = n[2].w;
    out->elements[4] = columns[1].y, out->elements[5] = w[1].y;
    m = w;
    out->elements[6] = m[0].z, out->elements[7] = (i ? m : w)[2].x - 4;
}
