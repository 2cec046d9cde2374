// Type traits and arrays, with the headers named and without.
// >>> processor_only()
// >>> run((1,), out=i4, length=4) == [1, 2, 5, 8]
// >>> headers = '#include <metal_array>\n#include <metal_type_traits>\n'
// >>> changed('', headers, 1)
// >>> run((1,), out=i4, length=4) == [1, 2, 5, 8]
#include <metal_stdlib>
using namespace metal;

template <class T, enable_if_t<is_integral_v<T>, bool> = true> int kind(T) { return 1; }
template <class T, enable_if_t<is_floating_point_v<T>, bool> = true> int kind(T) { return 2; }
constant array<int, 2> table = {7, 8};
static_assert(is_same_v<conditional_t<true, int, float>, int> && !is_same_v<int, uint>, "");
static_assert(is_signed_v<int> && is_unsigned_v<uint> && !is_signed_v<uint> && !is_scalar_v<float2>, "");
int last(thread const array<int, 3>& a) { return a[a.size() - 1]; }
kernel void f(device int* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    array<int, 3> a = {kind(1), kind(half(1)), 0};
    a[2] = 5;
    y[0] = a[0]; y[1] = a[1]; y[2] = last(a); y[3] = table[1];
}
