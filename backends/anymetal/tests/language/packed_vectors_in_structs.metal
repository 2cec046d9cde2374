// Packed vectors, and buffers without an index.
// >>> x = np.arange(30, dtype=f4).reshape(10, 3)
// >>> run(10, x, u4(10), length=20).reshape(10, 2) == x[:, :2] * x[:, 2:]
#include <metal_stdlib>
using namespace metal;

struct Pair { packed_float2 a; float b; };
kernel void f(device const Pair* pairs, constant uint& n, device float2* out,
              uint i [[thread_position_in_grid]]) {
    if (i < n) out[i] = pairs[i].a * pairs[i].b;
}
