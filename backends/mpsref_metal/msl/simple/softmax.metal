// Softmax over the channels of each pixel: one thread computes one pixel.
//
//   y[c]  = e**(x[c] - m) / sum over q of e**(x[q] - m),   m the largest x[q]
//   dx[c] = y[c] * (g[c] - sum over q of g[q] * y[q])
//
// The shift by m changes nothing, and keeps the exponentials from overflowing. The gradient reads y, not x.
#include <metal_stdlib>
using namespace metal;

kernel void forward(device const float *x, device float *y, constant int &channels,
                    uint pixel [[thread_position_in_grid]]) {
    device const float *from = x + pixel * channels;
    device float *to = y + pixel * channels;
    float largest = from[0], sum = 0;
    for (int c = 1; c < channels; ++c) largest = max(largest, from[c]);
    for (int c = 0; c < channels; ++c) sum += exp(from[c] - largest);
    for (int c = 0; c < channels; ++c) to[c] = exp(from[c] - largest) / sum;
}

kernel void gradient(device const float *g, device const float *y, device float *dx, constant int &channels,
                     uint pixel [[thread_position_in_grid]]) {
    device const float *upstream = g + pixel * channels, *result = y + pixel * channels;
    float sum = 0;
    for (int c = 0; c < channels; ++c) sum += upstream[c] * result[c];
    for (int c = 0; c < channels; ++c) dx[pixel * channels + c] = result[c] * (upstream[c] - sum);
}
