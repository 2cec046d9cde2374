// Forms that resemble an error.
// >>> run((3, 1), OUT, np.array([0, 2, 4], f4), length=3, version="3.1", kernel="f") == [1, 3, 4]
#include <metal_stdlib>
using namespace metal;

typedef device float* pointer;
template <class T> using numbers = device const T*;
template <class T> using eight = vec<T, 8>;
int best(constant float* table, int n) { return int(table[n]); }
constant float table[2] = {1, 2};
namespace a::b {
template <class T> kernel void g(pointer out, numbers<T> x, uint2 i [[thread_position_in_grid]]) {
    auto half_of = 0.5;
    static_assert(is_same_v<decltype(half_of), float>);
    const bfloat narrow = bfloat(half(x[i.x])) + 1.0bf;
    eight<bool> bits;
    for (int k = 0; k < 8; k++) bits[k] = k < 2;
    if (i.x == 0) out[i.x] = half(narrow);
    else out[i.x] = half_of * x[i.x];
    const float2 first(1, 2), second(first);  // each is constructed
    if (second.y == 2 && bits[1] && any(float4(x[i.x]) > float4(1, 2, 0, 4))) out[i.x] += best(table, 1);
}
template [[host_name("f")]] kernel void g<float>(pointer, numbers<float>, uint2);
}
