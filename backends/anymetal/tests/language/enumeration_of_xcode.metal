// As in the template of Xcode: the macro makes two declarations of the enumeration, one with its type.
// >>> run(32) == np.arange(32)
#include <metal_stdlib>
using namespace metal;

#define NS_ENUM(_type, _name) enum _name : _type _name; enum _name : _type
typedef NS_ENUM(int, Index) { IndexOut = 0 };
[[max_total_threads_per_threadgroup(32)]]
kernel void f(device float* out [[buffer(IndexOut)]], uint i [[thread_position_in_grid]]) { out[i] = i; }
