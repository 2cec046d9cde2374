// The largest element of a row and its position, by a tree over pairs. Only the lower half may be active in a step.
#include <metal_stdlib>
using namespace metal;

struct Best {
    float value;
    uint position;
};

kernel void argmax_of_row(device const float *x, device uint *positions,
                          uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                          uint row [[threadgroup_position_in_grid]]) {
    threadgroup Best best[128];
    best[t] = Best{x[i], t};
    for (uint step = 64; step > 0; step /= 2) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
#ifdef WRONG
        bool is_active = t + step < 128;
#else
        bool is_active = t < step;
#endif
        if (is_active) {
            Best other = best[t + step];  // first
            if (other.value > best[t].value)
                best[t] = other;  // second
        }
    }
    if (t == 0) positions[row] = best[0].position;
}
