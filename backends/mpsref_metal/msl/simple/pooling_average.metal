// Average pooling: one thread computes one element of the result.
//
//   y[a, b]  = sum of the pixels of window (a, b) inside the image / (N(a) * N(b))
//   dx[j, k] = sum over the windows (a, b) that contain pixel (j, k) of g[a, b] / (N(a) * N(b))
//
// Images are (N, H, W, C). On each axis, window i has its centre at pixel offset + i * stride.
#include <metal_stdlib>
using namespace metal;

struct Axis {
    int length, windows, taps, stride, offset;
    int shrinks, zero_pad;  // edge mode clamp: N counts the pixels inside the image and a zero pad around it
};

int first(constant Axis &axis, int i) { return axis.offset + i * axis.stride - axis.taps / 2; }

int last(constant Axis &axis, int i) { return first(axis, i) + axis.taps - 1; }

bool contains(constant Axis &axis, int i, int j) { return first(axis, i) <= j && j <= last(axis, i); }

int N(constant Axis &axis, int i) {
    if (!axis.shrinks) return axis.taps;
    return max(0, min(last(axis, i), axis.length - 1 + axis.zero_pad) - max(first(axis, i), -axis.zero_pad) + 1);
}

kernel void forward(device const float *x, device float *y, constant Axis &rows, constant Axis &columns,
                    uint3 at [[thread_position_in_grid]], uint3 size [[threads_per_grid]]) {
    int channels = size.x, b = at.y, a = at.z % rows.windows, n = at.z / rows.windows;
    float sum = 0;
    for (int j = max(first(rows, a), 0); j <= min(last(rows, a), rows.length - 1); ++j)
        for (int k = max(first(columns, b), 0); k <= min(last(columns, b), columns.length - 1); ++k)
            sum += x[((n * rows.length + j) * columns.length + k) * channels + at.x];
    int count = N(rows, a) * N(columns, b);
    y[(at.z * size.y + at.y) * channels + at.x] = count > 0 ? sum / count : 0;
}

kernel void gradient(device const float *g, device float *dx, constant Axis &rows, constant Axis &columns,
                     uint3 at [[thread_position_in_grid]], uint3 size [[threads_per_grid]]) {
    int channels = size.x, k = at.y, j = at.z % rows.length, n = at.z / rows.length;
    float sum = 0;
    for (int a = 0; a < rows.windows; ++a)
        for (int b = 0; b < columns.windows; ++b)
            if (contains(rows, a, j) && contains(columns, b, k))
                sum += g[((n * rows.windows + a) * columns.windows + b) * channels + at.x] /
                       (N(rows, a) * N(columns, b));
    dx[(at.z * size.y + at.y) * channels + at.x] = sum;
}
