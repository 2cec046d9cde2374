// Operators `<` and `>` for objects in several address spaces.
// >>> x = np.array([3, 4, 5], u4)
// >>> run((3,), x, out=u4) == [1 + 20, 0, 10]
#include <metal_stdlib>
using namespace metal;

class F {
    uint v;

public:
    constexpr F(uint v) : v(v) {}
    constexpr bool operator<(F rhs) const { return v < rhs.v; }
    constexpr bool operator>(F rhs) const { return v > rhs.v; }
    constexpr bool operator<(F rhs) device const { return v < rhs.v; }
    constexpr bool operator>(F rhs) device const { return v > rhs.v; }
    constexpr bool operator<=(F rhs) const { return v <= rhs.v; }
};
kernel void f(device const F *x, device uint *y, uint i [[thread_position_in_grid]]) {
    const F z = 4;
    y[i] = (x[i] < z) + 10 * (x[i] > z) + 20 * (F(x[i]) <= F(3));
}
