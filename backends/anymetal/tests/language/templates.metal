// Templates and overloads.
// >>> x, i = integers(5, 0, 50, 40).astype(f4), np.arange(10)
// >>> run(10, x) == np.maximum(x.reshape(10, 4).sum(1), i) + np.maximum(i, 3)
#include <metal_stdlib>
using namespace metal;

template <typename T> T largest(T a, T b) { return a < b ? b : a; }
template <typename T, int N> T total(device const T* x, uint first) {
    T sum = 0;
    for (int k = 0; k < N; ++k) sum += x[first + k];
    return sum;
}
template <typename T> void exchange(thread T& a, thread T& b) { T c = a; a = b; b = c; }
kernel void sums(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
    if (i >= 10) return;
    float a = total<float, 4>(x, 4 * i), b = i;
    exchange(a, b);
    out[i] = largest(a, b) + largest(int(i), 3);
}
