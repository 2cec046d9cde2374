// Functions of other stages are ignored, and linked ones called.
// >>> run(4) == [2, 4, 6, 8]
#include <metal_stdlib>
using namespace metal;

[[mesh]] void m(mesh<V, void, 3, 1, topology::triangle> x) {}
[[object]] void o(object_data float *x [[payload]], mesh_grid_properties g) {}
[[intersection(triangle)]] bool hit(float x [[distance]]) { return undefined_function(x); }
[[visible]] float twice(float x) { return 2 * x; }
[[stitchable]] float next(float x) { return x + 1; }
kernel void f(device float *out, uint i [[thread_position_in_grid]]) { if (i < 4) out[i] = twice(next(i)); }
