// Bilinear upsampling: one thread computes one element of the result.
//
//   y[a, b]  = sum over the pixels (j, k) of w(a, j) * w(b, k) * x[j, k]
//   dx[j, k] = sum over the results (a, b) of w(a, j) * w(b, k) * g[a, b]
//
// On each axis, result i lies at p = i * numerator / denominator, and w(i, j) is 1 at p = j, falling to 0 at distance
// 1. Behind the last pixel the results fade to 0 (edge mode zero), or keep the last pixel (clamp).
// Images are (N, H, W, C).
#include <metal_stdlib>
using namespace metal;

struct Axis {
    int length, results, numerator, denominator, clamps;
};

float w(constant Axis &axis, int i, int j) {
    int distance = i * axis.numerator - j * axis.denominator;  // in units of 1 / denominator: integers are exact
    if (axis.clamps && j == axis.length - 1) distance = min(distance, 0);
    return max(0, axis.denominator - abs(distance)) / float(axis.denominator);
}

kernel void forward(device const float *x, device float *y, constant Axis &rows, constant Axis &columns,
                    uint3 at [[thread_position_in_grid]], uint3 size [[threads_per_grid]]) {
    int channels = size.x, b = at.y, a = at.z % rows.results, n = at.z / rows.results;
    float sum = 0;
    for (int j = 0; j < rows.length; ++j)
        for (int k = 0; k < columns.length; ++k)
            sum += w(rows, a, j) * w(columns, b, k) * x[((n * rows.length + j) * columns.length + k) * channels + at.x];
    y[(at.z * size.y + at.y) * channels + at.x] = sum;
}

kernel void gradient(device const float *g, device float *dx, constant Axis &rows, constant Axis &columns,
                     uint3 at [[thread_position_in_grid]], uint3 size [[threads_per_grid]]) {
    int channels = size.x, k = at.y, j = at.z % rows.length, n = at.z / rows.length;
    float sum = 0;
    for (int a = 0; a < rows.results; ++a)
        for (int b = 0; b < columns.results; ++b)
            sum += w(rows, a, j) * w(columns, b, k) *
                   g[((n * rows.results + a) * columns.results + b) * channels + at.x];
    dx[(at.z * size.y + at.y) * channels + at.x] = sum;
}
