// A kernel is compiled beside functions that need image blocks, ray tracing and others that no runtime has.
// >>> run((2,), kernel="plain", length=2) == [3, 3]
// >>> kinds = {"tile": "image blocks", "traced": "ray tracing", "drawn": "command buffers", "rates": "rate maps"}
// >>> [refused("plain", "plain", f"{kind} are not supported", name) for name, kind in kinds.items()] == [None] * 4
#include <metal_stdlib>
#include <metal_imageblocks>
#include <metal_raytracing>
#include <metal_command_buffer>
using namespace metal;
using namespace metal::raytracing;

struct pixel { rgba8unorm<half4> c; };
static half4 color(threadgroup_imageblock pixel &p) { return p.c; }
kernel void tile(imageblock<pixel, imageblock_layout_explicit> b, ushort2 p [[thread_position_in_threadgroup]]) {
    threadgroup_imageblock pixel *v = b.data(p);
    v->c = color(*v);
}
static ray through(float3 p) { ray r; r.origin = p; return r; }
kernel void traced(primitive_acceleration_structure a [[buffer(1)]], device float *y [[buffer(0)]]) {
    intersector<triangle_data> one;
    y[0] = one.intersect(through(0), a).distance;
}
struct Draws { command_buffer c [[id(0)]]; };
kernel void drawn(device Draws &a [[buffer(1)]], uint i [[thread_position_in_grid]]) { render_command(a.c, i).reset(); }
kernel void rates(constant rasterization_rate_map_data &d [[buffer(1)]], device float2 *y [[buffer(0)]]) {
    y[0] = rasterization_rate_map_decoder(d).map_physical_to_screen_coordinates(float2(0));
}
struct vertices { interpolant<float, interpolation::perspective> x; };
using triangles = mesh<pixel, pixel, 64, 64, topology::triangle>;
[[mesh]] void shape(triangles m) { m.set_primitive_count(1); }
[[object]] void objects(object_data pixel &p [[payload]], mesh_grid_properties g) {}
float half_of(float ray, float mesh, float topology) { return (ray * mesh + topology) / 2; }
kernel void plain(device float *y [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] = half_of(2, 2, 2); }
