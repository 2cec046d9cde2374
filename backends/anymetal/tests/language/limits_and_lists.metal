// numeric_limits of vectors, initializer_list, the arguments of an indirect dispatch, and conversions to vectors of bool.
// >>> a = np.zeros(3, u4)
// >>> out = run(1, a, np.uint32(130), length=12)
// >>> contents(a, u4) == [0, 0, 0]
// >>> out == [3.4028234663852886e38, -65504, 2147483648, 9, 8, 3, 1, 0, 1, 1, 1, 0]
#include <metal_stdlib>
using namespace metal;

struct Columns {
    float4 c[2];
    thread Columns &operator=(initializer_list<float4> all) thread {
        size_t i = 0;
        for (auto one : all) c[i++] = one * float(all.size());
        return *this;
    }
};
kernel void f(device MTLDispatchThreadgroupsIndirectArguments &a, constant uint &n, device float *out,
              uint i [[thread_position_in_grid]]) {
    if (i != 0) return;
    a.threadgroupsPerGrid[0] = (n + 63) / 64, a.threadgroupsPerGrid[1] = 1, a.threadgroupsPerGrid[2] = 1;
    Columns c;
    c = {float4(4.5), float4(1, 2, 3, 4)};
    out[0] = numeric_limits<float4>::max().w, out[1] = numeric_limits<half3>::lowest().z;
    out[2] = numeric_limits<int2>::max().y, out[3] = c.c[0].y, out[4] = c.c[1].w, out[5] = a.threadgroupsPerGrid[0];
    const bool4 from_numbers(c.c[1] - 2), from_integers = bool4(uint4(0, n, 0, 1));
    const bool2 cast = (bool2)int2(0, -3);
    const half4 h = half4(c.c[1]);
    out[6] = from_numbers.y, out[7] = from_numbers.x, out[8] = from_integers.y, out[9] = cast.y;
    const bool4 both = (h < half4(9)) && from_integers;
    out[10] = both.y, out[11] = both.z;
}
