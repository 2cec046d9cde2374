// Batch normalization: one thread computes one channel of the statistics, or one element of the result.
//
//   mean = sum of x / n,   m2 = sum of (x - mean)**2,   over the n pixels of the batch
//   y    = gamma * (x - mean) / sqrt(variance + epsilon) + beta,   variance = m2 / n
//
// Pixel i has the values x[i * channels + c]. The sums are of differences from the first pixel, which do not cancel
// where the mean is much larger than the deviation.
#include <metal_stdlib>
using namespace metal;

kernel void statistics(device const float *x, device float *mean, device float *m2, constant int &pixels,
                       uint c [[thread_position_in_grid]], uint channels [[threads_per_grid]]) {
    float shift = x[c], sum = 0, squares = 0;
    for (int i = 0; i < pixels; ++i) sum += x[i * channels + c] - shift;
    float average = sum / pixels;
    for (int i = 0; i < pixels; ++i) {
        float deviation = (x[i * channels + c] - shift) - average;
        squares += deviation * deviation;
    }
    mean[c] = shift + average;
    m2[c] = squares;
}

kernel void forward(device const float *x, device const float *mean, device const float *variance,
                    device const float *gamma, device const float *beta, device float *y, constant float &epsilon,
                    uint2 at [[thread_position_in_grid]], uint2 size [[threads_per_grid]]) {
    uint c = at.x, i = at.y * size.x + c;
    float xhat = (x[i] - mean[c]) / sqrt(variance[c] + epsilon);
    y[i] = gamma[c] * xhat + beta[c];
}
