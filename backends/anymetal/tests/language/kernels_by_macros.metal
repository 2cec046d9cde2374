// Several kernels share macros and types.
// >>> a, b = np.arange(20, dtype=i4), np.arange(20, 40, dtype=i4)
// >>> run(20, a, b, out=i4, kernel="add") == a + b
// >>> run(20, a, b, out=i4, kernel="subtract") == a - b
// >>> run(20, a, b, out=i4, kernel="multiply") == a * b
#include <metal_stdlib>
using namespace metal;

#define APPLY(NAME, OPERATOR) \
    kernel void NAME(device const int* a [[buffer(0)]], device const int* b [[buffer(1)]], \
                     device int* out [[buffer(2)]], uint i [[thread_position_in_grid]]) { \
        if (i < 20) out[i] = a[i] OPERATOR b[i]; \
    }
APPLY(add, +)
APPLY(subtract, -)
#if __METAL_VERSION__ >= 230
APPLY(multiply, *)
#endif
