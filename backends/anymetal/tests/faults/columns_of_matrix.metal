// 16 codes of a block to the columns of a matrix that the caller has, a component at a time.
#include <metal_stdlib>
using namespace metal;
struct block { uchar scale; uchar codes[16]; };
constant float levels[4] = {1, 2, 3, 5};

template <typename T> void decode(device const block *b, short shift, thread T &m) {
    device const uchar *codes = b->codes;
    const float d = b->scale;
    for (int i = 0; i < 4; ++i) {
        m[i][0] = d * levels[(codes[4 * i] >> shift) & 3];
        m[i][1] = d * levels[(codes[4 * i + 1] >> shift) & 3];
        m[i][2] = d * levels[(codes[4 * i + 2] >> shift) & 3];
#ifdef WRONG
        if (i < 3)
#endif
        m[i][3] = d * levels[(codes[4 * i + 3] >> shift) & 3];
    }
}

template <short nl, void (*function)(device const block *, short, thread float4x4 &)>
kernel void decoded(device const void *x, device float4x4 *y, uint i [[thread_position_in_grid]]) {
    float4x4 m;
    function((device const block *)x + i / nl, 2 * (i % nl), m);
    y[i] = m;  // here
}

typedef decltype(decoded<2, decode>) decoded_t;
template [[host_name("columns_of_matrix")]] kernel decoded_t decoded<2, decode>;
