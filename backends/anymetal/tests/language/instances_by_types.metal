// Instantiations whose parameters give the other arguments of a template, `unsigned` positions, vectors of eight, and a
// class with the name of an alias.
// >>> run((2,), np.array([3, 4], i4), kernel="k_float", length=2) == [3, 4]
// >>> run((2,), np.array([3.5, 4], f4), kernel="k_all", out=i4, length=2) == [3, 4]
// >>> run(1, kernel="wide", out=np.float16, length=8) == [4] * 8
// >>> run(1, kernel="named", out=u4, length=1) == [5]
#include <metal_stdlib>
using namespace metal;

template <class A, class B = float, class C>
kernel void k(constant C *y [[buffer(0)]], device A *x [[buffer(1)]], unsigned i [[thread_position_in_grid]]) {
    x[i] = A(y[i]);
}
template [[host_name("k_float")]] kernel void k<float>(constant int *, device float *, unsigned);
template [[host_name("k_all")]] kernel void k<int, float, float>(constant float *, device int *, unsigned);
typedef half half8 __attribute__((ext_vector_type(8)));
typedef float float8 __attribute__((ext_vector_type(8)));
kernel void wide(device half8 *x [[buffer(0)]]) {
    const float8 v = float8(half8(half(2))) * 2;
    x[0] = half8(v);
}
namespace inner { class F { public: F() = default; constexpr F(uint v) : value(v) {} uint value; }; }
typedef inner::F F;
kernel void named(device F *x [[buffer(0)]]) { x[0] = F(5); }
