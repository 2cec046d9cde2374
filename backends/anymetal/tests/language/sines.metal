// The example with which metalcompute introduces itself, with the bounds check that the rounded-up grid needs.
// >>> angles = np.linspace(-7, 7, 12345, dtype=f4)
// >>> np.abs(run(12345, angles, OUT, u4(12345)) - np.sin(angles.astype(float))).max() < 2e-6
#include <metal_stdlib>
using namespace metal;

kernel void sines(device const float* angles [[buffer(0)]], device float* results [[buffer(1)]],
                  constant uint& n [[buffer(2)]], uint index [[thread_position_in_grid]]) {
    if (index < n) results[index] = sin(angles[index]);
}
