// Convolution, gradient for weights and biases: one thread computes one element of the result.
//
//   dw[o, t, u, c] = sum over the images n and windows (a, b) of g[n, a, b, o] * x[n, pixel of tap (t, u), c]
//   db[o]          = sum over the images n and windows (a, b) of g[n, a, b, o]
//
// Images are (N, H, W, channels), weights (output channels, kernel rows, kernel columns, input channels / groups).
#include <metal_stdlib>
using namespace metal;

struct Axis {
    int length, windows, taps, stride, offset, dilation, clamps;
};

struct Channels {
    int input, output, groups, images;
};

// The pixel that tap t of window i reads; -1 for a tap outside the image that is skipped.
int pixel(constant Axis &axis, int i, int t) {
    int centre = ((axis.taps - 1) * axis.dilation + 1) / 2;
    int j = axis.offset + i * axis.stride - centre + t * axis.dilation;
    return axis.clamps ? clamp(j, 0, axis.length - 1) : j < axis.length ? max(j, -1) : -1;
}

kernel void gradient_weights(device const float *g, device const float *x, device float *dw, constant Axis &rows,
                             constant Axis &columns, constant Channels &channels,
                             uint3 at [[thread_position_in_grid]]) {
    int count = channels.input / channels.groups;
    int c = at.x, u = at.y % columns.taps, t = at.y / columns.taps, o = at.z;
    int from = o / (channels.output / channels.groups) * count + c;
    float sum = 0;
    for (int n = 0; n < channels.images; ++n)
        for (int a = 0; a < rows.windows; ++a)
            for (int b = 0; b < columns.windows; ++b) {
                int j = pixel(rows, a, t), k = pixel(columns, b, u);
                if (j < 0 || k < 0) continue;
                sum += g[((n * rows.windows + a) * columns.windows + b) * channels.output + o] *
                       x[((n * rows.length + j) * columns.length + k) * channels.input + from];
            }
    dw[((o * rows.taps + t) * columns.taps + u) * count + c] = sum;
}

kernel void gradient_biases(device const float *g, device float *db, constant int &pixels,
                            uint o [[thread_position_in_grid]], uint outputs [[threads_per_grid]]) {
    float sum = 0;
    for (int i = 0; i < pixels; ++i) sum += g[i * outputs + o];
    db[o] = sum;
}
