// A member without an address space is one of objects in `thread` memory.
// >>> x = np.array([3, 4, 5], u4)
// >>> run(3, x, out=u4) == [3 + 2, 4 + 2, 5 + 2]
// >>> refused("x[i].there()", "x[i].get()", "not qualified with `device`")
// >>> refused("x[i] <= z", "x[i] < z", "the member function is not qualified with `device`")
// >>> refused("x[i].there()", "x[i].once()", "cannot initialize object parameter of type")
#include <metal_stdlib>
using namespace metal;

struct F {
    uint v;
    uint get() const { return v; }
    uint get(uint more) const { return v + more; }
    uint there() const device { return v; }
    constexpr bool operator<(F o) const { return v < o.v; }
    constexpr bool operator<=(F o) const device { return v <= o.v; }
    uint once() const { return v; }
    F next() { v += 1; return *this; }
};
kernel void f(device const F *x, device uint *y, uint i [[thread_position_in_grid]]) {
    if (i >= 3) return;
    F z = x[i];
    const F w = z;
    y[i] = x[i].there() + (x[i] <= z) + (w < z.next()) + (F{1}.get(2) - 3) + (F{2} < w ? 0 : 5);
}
