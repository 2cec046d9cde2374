// Batch normalization, gradient: one thread computes one channel of the sums, or one element of the result.
//
//   xhat = (x - mean) * r,   r = 1 / sqrt(variance + epsilon)
//   dbeta = sum of g,   dgamma = sum of g * xhat,   over the n pixels of the batch
//   dx = gamma * r * (g - dbeta / n - xhat * dgamma / n)
//
// mean and variance depend on every pixel of the batch: the two sums are their part in the gradient. With pixels = 0
// they are constants, and dx = gamma * r * g.
#include <metal_stdlib>
using namespace metal;

kernel void statistics_gradient(device const float *g, device const float *x, device const float *mean,
                                device const float *variance, device float *dbeta, device float *dgamma,
                                constant float &epsilon, constant int &pixels, uint c [[thread_position_in_grid]],
                                uint channels [[threads_per_grid]]) {
    float of_beta = 0, of_gamma = 0, r = 1 / sqrt(variance[c] + epsilon);
    for (int i = 0; i < pixels; ++i) {
        of_beta += g[i * channels + c];
        of_gamma += g[i * channels + c] * ((x[i * channels + c] - mean[c]) * r);
    }
    dbeta[c] = of_beta;
    dgamma[c] = of_gamma;
}

kernel void gradient(device const float *g, device const float *x, device const float *mean,
                     device const float *variance, device const float *gamma, device const float *dbeta,
                     device const float *dgamma, device float *dx, constant float &epsilon, constant int &pixels,
                     uint2 at [[thread_position_in_grid]], uint2 size [[threads_per_grid]]) {
    uint c = at.x, i = at.y * size.x + c;
    float r = 1 / sqrt(variance[c] + epsilon), xhat = (x[i] - mean[c]) * r;
    float through_statistics = pixels > 0 ? (dbeta[c] + xhat * dgamma[c]) / pixels : 0;
    dx[i] = gamma[c] * r * (g[i] - through_statistics);
}
