// Attributes and words that have no effect on a kernel.
// >>> x = np.arange(4, dtype=f4)
// >>> run((4,), np.float32(2), x, version="3.2") == 2 * x * x + 4 + 1
// >>> refused('extern "C" struct', 'extern "C" int getpid(); extern "C++" struct', "no linkage specifications")
// >>> refused("[[clang::optnone]]", '[[gnu::constructor]]', "the attribute")
// >>> refused("#pragma -", "#pragma comment(lib)", "is not supported")
#pragma -
#pragma metal performance_hint(fast_math)
#include <metal_stdlib>
#include <TargetConditionals.h>
using namespace metal;

extern "C" struct Count { uint n; };
extern "C" {
constant bool is_lit [[function_constant(0)]];
struct Vertex { float3 at; float3 normal [[function_constant(is_lit)]]; };
inline Count count() { return Count{TARGET_OS_OSX}; }
}
struct Places { coherent(device) device float *p; };
template <typename T> [[clang::optnone]] T product(T a, T b) { return fma(a, b, T(0)); }
extern "C" kernel void f(constant float &b [[user(fake0)]], device const float *x [[buffer(1), access(read)]],
                         coherent device float *y [[buffer(2), access(write)]], uint i [[thread_position_in_grid]]) {
    y[i] = b * product(x[i], x[i]) + sizeof(Count) + count().n;
}
