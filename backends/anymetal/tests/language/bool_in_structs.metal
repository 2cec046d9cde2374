// Vectors of bool in structs and buffers have bytes.
// >>> kinds = {"m": ("4?", 0), "f": ("f4", 4), "n": ("(2,4)?", 8), "q": ("2?", 16), "r": ("2?", 18)}
// >>> s = np.zeros(1, np.dtype(kinds))
// >>> s["m"], s["f"], s["n"][0, 1, 2], s["q"][0, 1], s["r"][0, 0] = [True, False, True, True], 1, True, True, True
// >>> m, x = s["m"], np.array([[1, 0, 0, 1], [0, 1, 1, 1]], bool)
// >>> out, y, t = device.buffer(8), device.buffer(32), device.buffer(20)
// >>> run(2, s, x, out, y, t, out=i4, length=13) == [1, 0, 1, 1, 0, 1, 5, 0, 2, 3, 1, 5, 0x10001]
// >>> contents(out, bool).reshape(2, 4) == [[False, True, False, True], [False, False, True, True]]
// >>> contents(y, f4).reshape(2, 4) == 1 + m + 10 * x + 100 * m + 1000 * (m == x)
// >>> set_there = contents(t, s.dtype)[0]
// >>> set_there["m"] == [False, False, True, True]
// >>> np.stack([set_there["q"], set_there["r"]]) == [[True, False], [True, False]]
// >>> set_there["n"][1, :3] == [True, True, True]
#include <metal_stdlib>
using namespace metal;

struct S { bool4 m; float f; bool3 n[2]; metal::bool2 q; vec<bool, 2> r; };
static_assert(sizeof(S) == 20, "S");
struct P { bool4 m = bool4(true, false, true, false); };
kernel void f(constant S &s, device const bool4 *in, device bool4 *out, device float4 *y, device S *t,
              device int *z, uint i [[thread_position_in_grid]]) {
    if (i >= 2) return;
    const bool4 a = s.m, b = in[i], w = !s.m;
    y[i] = select(float4(1), float4(2), s.m) + float4(in[i]) * 10 + float4(a) * 100 + float4(s.m == in[i]) * 1000;
    out[i] = in[i] && s.m;
    device bool4 *o = out + i;
    if (i == 0) {
        (*o).x = !(*o).x;
        o->y = s.f > 0;
    } else {
        out[i] = half4(1, 2, 3, 4) > 2.5h;
    }
    if (i != 0) return;
    P p;
    t->m = float4(0, 1, 2, 3) > 1.5f, t->n[1] = bool3(true), t->q.x = true, t->r = !s.q;
    z[0] = any(s.m), z[1] = all(s.m), z[2] = s.n[1].z, z[3] = int(s.q.y), z[4] = metal::any(s.n[0]), z[5] = s.r.x;
    z[6] = p.m.x + 2 * p.m.y + 4 * p.m.z + 8 * p.m.w;
    p.m.y = true;
    union { bool4 b; uint bits; } u;
    u.b = {true, false, false, false};
    u.b[i + 2] = true;
    z[12] = u.bits;
    z[7] = all(p.m), z[8] = w.x + w.y * 2 + w.z * 4 + w.w * 8, z[10] = s.m[2], z[11] = b[1] ? 7 : 5;
    z[9] = any(in[i] ^ s.m) + 2 * any(in[i] | s.m) + 4 * all(s.m != in[i]);
}
