// Bit-fields, of which the restrictions of MSL say nothing: they lie as those of C++ for the same processors.
// >>> s = np.array([0xABCD0005 | 0x3 << 4], u4)
// >>> run(1, s, out=u4, length=5) == [0xABCD0045, 5, 3, 9, 4]
#include <metal_stdlib>
using namespace metal;

struct Bits { uint a : 4; uint b : 12; uint : 0; ushort c; };
struct Word { uint a : 4, b : 12; uint c : 16; };
static_assert(sizeof(Word) == 4 && sizeof(Bits) == 8, "sizes");
kernel void f(device Word *s, device uint *out, uint i [[thread_position_in_grid]]) {
    if (i != 0) return;
    Bits b;
    b.a = 8, b.b = 3;
    b.a += 1;
    out[1] = s[0].a, out[2] = s[0].b, out[3] = i ? s[0].a : b.a;
    s[0].b = s[0].b + 1;
    out[4] = i ? 1 : s[0].b;
    out[0] = as_type<uint>(s[0]);
}
