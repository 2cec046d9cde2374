// Max pooling: one thread computes one element of the result.
//
//   y[a, b]  = the largest value that a tap of window (a, b) reads
//   dx[j, k] = sum over the windows (a, b) whose first tap with the largest value reads pixel (j, k) of g[a, b]
//
// A tap outside the image reads 0 (edge mode zero) or the nearest pixel (clamp). Images are (N, H, W, C).
#include <metal_stdlib>
using namespace metal;

struct Axis {
    int length, windows, taps, stride, offset, dilation, clamps;
};

// The pixel that tap t of window i reads; -1 for a tap outside the image that reads 0.
int pixel(constant Axis &axis, int i, int t) {
    int centre = ((axis.taps - 1) * axis.dilation + 1) / 2;
    int j = axis.offset + i * axis.stride - centre + t * axis.dilation;
    return axis.clamps ? clamp(j, 0, axis.length - 1) : j < axis.length ? max(j, -1) : -1;
}

struct Selected {
    float value;
    int row, column;
};

Selected select_tap(device const float *image, constant Axis &rows, constant Axis &columns, int channels, int a,
                    int b) {
    Selected best = {-INFINITY, -1, -1};
    for (int t = 0; t < rows.taps; ++t)
        for (int u = 0; u < columns.taps; ++u) {
            int j = pixel(rows, a, t), k = pixel(columns, b, u);
            float value = j < 0 || k < 0 ? 0 : image[(j * columns.length + k) * channels];
            if (value > best.value) best = {value, j, k};  // >, not >=: the first of equal values
        }
    return best;
}

kernel void forward(device const float *x, device float *y, constant Axis &rows, constant Axis &columns,
                    uint3 at [[thread_position_in_grid]], uint3 size [[threads_per_grid]]) {
    int channels = size.x, b = at.y, a = at.z % rows.windows, n = at.z / rows.windows;
    device const float *image = x + n * rows.length * columns.length * channels + at.x;
    y[(at.z * size.y + at.y) * channels + at.x] = select_tap(image, rows, columns, channels, a, b).value;
}

kernel void gradient(device const float *g, device const float *x, device float *dx, constant Axis &rows,
                     constant Axis &columns, uint3 at [[thread_position_in_grid]], uint3 size [[threads_per_grid]]) {
    int channels = size.x, k = at.y, j = at.z % rows.length, n = at.z / rows.length;
    device const float *image = x + n * rows.length * columns.length * channels + at.x;
    float sum = 0;
    for (int a = 0; a < rows.windows; ++a)
        for (int b = 0; b < columns.windows; ++b) {
            Selected from = select_tap(image, rows, columns, channels, a, b);
            if (from.row == j && from.column == k)
                sum += g[((n * rows.windows + a) * columns.windows + b) * channels + at.x];
        }
    dx[(at.z * size.y + at.y) * channels + at.x] = sum;
}
