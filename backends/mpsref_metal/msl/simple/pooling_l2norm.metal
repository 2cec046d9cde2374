// L2-norm pooling: one thread computes one element of the result.
//
//   y[a, b]  = sqrt(sum over the taps of window (a, b) of V**2), V what a tap reads
//   dx[j, k] = sum over the windows (a, b) of g[a, b] * (taps of (a, b) that read (j, k)) * x[j, k] / y[a, b]
//
// A tap outside the image reads 0 (edge mode zero) or the nearest pixel (clamp). A window of zeros adds nothing.
#include <metal_stdlib>
using namespace metal;

struct Axis {
    int length, windows, taps, stride, offset, clamps;
};

// The pixel that tap t of window i reads; -1 for a tap outside the image that reads 0.
int pixel(constant Axis &axis, int i, int t) {
    int j = axis.offset + i * axis.stride - axis.taps / 2 + t;
    return axis.clamps ? clamp(j, 0, axis.length - 1) : j < axis.length ? max(j, -1) : -1;
}

int times_read(constant Axis &axis, int i, int j) {
    int count = 0;
    for (int t = 0; t < axis.taps; ++t) count += pixel(axis, i, t) == j;
    return count;
}

float norm(device const float *image, constant Axis &rows, constant Axis &columns, int channels, int a, int b) {
    float sum = 0;
    for (int t = 0; t < rows.taps; ++t)
        for (int u = 0; u < columns.taps; ++u) {
            int j = pixel(rows, a, t), k = pixel(columns, b, u);
            float value = j < 0 || k < 0 ? 0 : image[(j * columns.length + k) * channels];
            sum += value * value;
        }
    return sqrt(sum);
}

kernel void forward(device const float *x, device float *y, constant Axis &rows, constant Axis &columns,
                    uint3 at [[thread_position_in_grid]], uint3 size [[threads_per_grid]]) {
    int channels = size.x, b = at.y, a = at.z % rows.windows, n = at.z / rows.windows;
    device const float *image = x + n * rows.length * columns.length * channels + at.x;
    y[(at.z * size.y + at.y) * channels + at.x] = norm(image, rows, columns, channels, a, b);
}

kernel void gradient(device const float *g, device const float *x, device float *dx, constant Axis &rows,
                     constant Axis &columns, uint3 at [[thread_position_in_grid]], uint3 size [[threads_per_grid]]) {
    int channels = size.x, k = at.y, j = at.z % rows.length, n = at.z / rows.length;
    device const float *image = x + n * rows.length * columns.length * channels + at.x;
    float pixel_value = image[(j * columns.length + k) * channels], sum = 0;
    for (int a = 0; a < rows.windows; ++a)
        for (int b = 0; b < columns.windows; ++b) {
            int times = times_read(rows, a, j) * times_read(columns, b, k);
            float y = times > 0 ? norm(image, rows, columns, channels, a, b) : 0;
            float upstream = g[((n * rows.windows + a) * columns.windows + b) * channels + at.x];
            if (y > 0) sum += upstream * times * (pixel_value / y);
        }
    dx[(at.z * size.y + at.y) * channels + at.x] = sum;
}
