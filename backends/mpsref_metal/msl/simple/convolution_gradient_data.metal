// Convolution, gradient for data: one thread computes one element of the result.
//
//   dx[j, k, c] = sum over the windows (a, b) and taps (t, u) that read pixel (j, k), and over the output channels o
//                 of the group of c, of w[o, t, u, c] * g[a, b, o]
//
// Images are (N, H, W, channels), weights (output channels, kernel rows, kernel columns, input channels / groups).
#include <metal_stdlib>
using namespace metal;

struct Axis {
    int length, windows, taps, stride, offset, dilation, clamps;
};

struct Channels {
    int input, output, groups;
};

// The pixel that tap t of window i reads; it may lie outside the image.
int pixel(constant Axis &axis, int i, int t) {
    int centre = ((axis.taps - 1) * axis.dilation + 1) / 2;
    return axis.offset + i * axis.stride - centre + t * axis.dilation;
}

kernel void gradient_data(device const float *g, device const float *weights, device float *dx, constant Axis &rows,
                          constant Axis &columns, constant Channels &channels, uint3 at [[thread_position_in_grid]]) {
    int k = at.y, j = at.z % rows.length, n = at.z / rows.length;
    int inputs = channels.input / channels.groups, outputs = channels.output / channels.groups;
    int c = at.x % inputs, first = at.x / inputs * outputs;
    float sum = 0;
    for (int a = 0; a < rows.windows; ++a)
        for (int t = 0; t < rows.taps; ++t) {
            if (pixel(rows, a, t) != j) continue;
            for (int b = 0; b < columns.windows; ++b)
                for (int u = 0; u < columns.taps; ++u) {
                    if (pixel(columns, b, u) != k) continue;
                    for (int o = first; o < first + outputs; ++o)
                        sum += weights[((o * rows.taps + t) * columns.taps + u) * inputs + c] *
                               g[((n * rows.windows + a) * columns.windows + b) * channels.output + o];
                }
        }
    dx[(at.z * columns.length + k) * channels.input + at.x] = sum;
}
