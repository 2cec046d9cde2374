// Both operands of a uniform condition are evaluated.
// >>> run(1024, i4(8), out=i4) == np.full(1024, 21)
#include <metal_stdlib>
using namespace metal;

static bool count(device int *x) { return ++*x > 0; }
kernel void f(constant int &n, device int *out, uint i [[thread_position_in_grid]]) {
    const uniform<int> size = make_uniform(n);
    const uniform<int> left = size % 4;
    out[i] = 10 * (size / 4 + left);
    if (left > 0 && count(out + i)) out[i] += 100;
    if (n > 100 && count(out + i)) out[i] += 1000;
}
