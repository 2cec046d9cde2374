// Members that return their object, and its address space.
// >>> run(32) == np.arange(32) + 3
// >>> refused("Sum a{1}, b;", "thread float& x = *out; Sum a{1}, b;", "changes address space|cannot initialize")
// >>> refused("Sum a{1}, b;", "Sum a; device Sum* p = a.self(); Sum b;", "changes address space|cannot initialize")
#include <metal_stdlib>
using namespace metal;

struct Sum {
    float value;
    thread Sum& operator+=(float x) { value += x; return *this; }
    thread Sum* self() { return this; }
    void copy_to(thread Sum& other) const { const thread Sum& me = *this; other = me; }
};
[[max_total_threads_per_threadgroup(32)]]
kernel void f(device float* out, uint i [[thread_position_in_grid]]) {
    Sum a{1}, b;
    (a += i) += 2;
    a.self()->copy_to(b);
    out[i] = b.value;
}
