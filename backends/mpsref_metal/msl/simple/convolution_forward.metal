// Convolution, forward: one thread computes one element of the result.
//
//   y[a, b, o] = bias[o] + sum over the taps (t, u) and channels c of w[o, t, u, c] * x[pixel of the tap, c]
//
// Images are (N, H, W, channels), weights (output channels, kernel rows, kernel columns, input channels / groups).
// Output channel o reads the input channels of its group. A tap outside the image is skipped (edge mode zero), or
// reads the nearest pixel (clamp).
#include <metal_stdlib>
using namespace metal;

struct Axis {
    int length, windows, taps, stride, offset, dilation, clamps;
};

struct Channels {
    int input, output, groups;
};

// The pixel that tap t of window i reads; -1 for a tap outside the image that is skipped.
int pixel(constant Axis &axis, int i, int t) {
    int centre = ((axis.taps - 1) * axis.dilation + 1) / 2;
    int j = axis.offset + i * axis.stride - centre + t * axis.dilation;
    return axis.clamps ? clamp(j, 0, axis.length - 1) : j < axis.length ? max(j, -1) : -1;
}

kernel void forward(device const float *x, device const float *weights, device const float *biases, device float *y,
                    constant Axis &rows, constant Axis &columns, constant Channels &channels,
                    uint3 at [[thread_position_in_grid]]) {
    int o = at.x, b = at.y, a = at.z % rows.windows, n = at.z / rows.windows;
    int count = channels.input / channels.groups, first = o / (channels.output / channels.groups) * count;
    float sum = biases[o];
    for (int t = 0; t < rows.taps; ++t)
        for (int u = 0; u < columns.taps; ++u) {
            int j = pixel(rows, a, t), k = pixel(columns, b, u);
            if (j < 0 || k < 0) continue;
            for (int c = 0; c < count; ++c)
                sum += weights[((o * rows.taps + t) * columns.taps + u) * count + c] *
                       x[((n * rows.length + j) * columns.length + k) * channels.input + first + c];
        }
    y[(at.z * columns.windows + b) * channels.output + o] = sum;
}
