// A convolution on the textures of MPS images: one thread computes one texel, four channels of a pixel of the result.
//
//   y[a, b, o] = bias[o] + sum over taps (p, q) and channels c of w[o, p, q, c] * x[r + p, s + q, c]
//
// Window (a, b) begins at row r = offset + a * stride - taps / 2, and at such a column. Pixels outside of the image are 0.
// Slice n * ceil(C / 4) + c / 4 of a texture has channel c of image n; the channels behind C are undefined, and not used.
#include <metal_stdlib>
using namespace metal;

struct Axis {
    int length, windows, taps, stride, offset;
};

struct Channels {
    int in, out;
};

kernel void forward(texture2d_array<half> x [[texture(0)]], texture2d_array<half, access::write> y [[texture(1)]],
                    device const half *w, device const half *bias, constant Axis &rows, constant Axis &columns,
                    constant Channels &channels, uint3 at [[thread_position_in_grid]]) {
    int slices = (channels.in + 3) / 4, results = (channels.out + 3) / 4, n = at.z / results;
    int r = rows.offset + int(at.y) * rows.stride - rows.taps / 2;
    int s = columns.offset + int(at.x) * columns.stride - columns.taps / 2;
    half4 result = 0;
    for (int i = 0; i < 4; ++i) {
        int o = int(at.z) % results * 4 + i;
        if (o >= channels.out) break;
        float sum = bias[o];
        for (int p = max(0, -r); p < min(rows.taps, rows.length - r); ++p)
            for (int q = max(0, -s); q < min(columns.taps, columns.length - s); ++q)
                for (int c = 0; c < channels.in; ++c) {
                    half4 v = x.read(uint2(s + q, r + p), n * slices + c / 4);
                    sum += float(w[((o * rows.taps + p) * columns.taps + q) * channels.in + c]) * float(v[c % 4]);
                }
        result[i] = half(sum);
    }
    y.write(result, at.xy, at.z);
}
