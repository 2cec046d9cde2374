// Copies from constant memory, and references to temporaries.
// >>> run(4) == [9, 11, 13, 15]
// >>> refused("twice(int(i))", "twice(*out)", "an argument is in another address space")
#include <metal_stdlib>
using namespace metal;

struct S { float a; float b[2]; };
constant S one = {1, {2, 3}};
struct Sum { static constexpr constant S init = {4, {5, 6}}; };
float twice(thread const float &x) { return 2 * x; }
template <typename T> kernel void f(device T *out, uint i [[thread_position_in_grid]]) {
    if (i >= 4) return;
    threadgroup T shared[4] = {0};
    S s, t = one, all[2];
    s = one;
    all[1] = Sum::init;
    shared[i] = twice(int(i));
    out[i] = s.b[1] + t.a + all[1].b[0] + shared[i];
}
template [[host_name("f")]] [[kernel]] decltype(f<float>) f<float>;
