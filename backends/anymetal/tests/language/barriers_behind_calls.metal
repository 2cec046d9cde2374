// Barriers behind calls, types and templates.
// >>> run(64, out=i4) == (np.arange(64) + 1) % 64
#include <metal_stdlib>
using namespace metal;

struct Tile {
    uint t;
    int rotate(threadgroup int* tile) const {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        return tile[(t + 1) % 64];
    }
};
Tile make(uint t) { return Tile{t}; }
template <typename F> int through(F f, threadgroup int* tile) { return f.rotate(tile); }
[[max_total_threads_per_threadgroup(64)]]
kernel void f(device int* out [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {
    threadgroup int tile[64];
    tile[t] = int(t);
    auto maker = make(t);
    out[t] = through(maker, tile);
}
