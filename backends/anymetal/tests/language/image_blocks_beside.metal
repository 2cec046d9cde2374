// A kernel that needs no image block is compiled beside those that do, and so are the functions that it calls.
// >>> run((2,), kernel="plain") == [6, 6]
// >>> refused_kernel = lambda name: refused("plain", "plain", "image blocks are not supported", name)
// >>> [refused_kernel(name) for name in ("image", "arguments", "instance")] == [None] * 3
#include <metal_stdlib>
using namespace metal;

struct Args { imageblock<float> t; device float *x; };
template <class T> struct Reader { static float read(T t) { return 1; } };
template <> struct Reader<imageblock<float>> { static float read(imageblock<float> t) { return t.read(uint2(0)).x; } };
float sampled(imageblock<float> t, float2 p) { return t.read(ushort2(p)).x; }
float outer(imageblock<float> t) { return sampled(t, float2(0)); }
float scale(float s) { return s * 2; }
kernel void image(imageblock<float> t, device float *y, uint i [[thread_position_in_grid]]) {
    y[i] = outer(t);
}
kernel void arguments(constant Args &args [[buffer(0)]], uint i [[thread_position_in_grid]]) { args.x[i] = 1; }
template <class T> kernel void loaded(imageblock<T> t, device float *y) { y[0] = 1; }
template [[host_name("instance")]] kernel void loaded<float>(imageblock<float>, device float *);
kernel void plain(device float *y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float s = scale(2.5);
    y[i] = s + Reader<float>::read(1);
}
