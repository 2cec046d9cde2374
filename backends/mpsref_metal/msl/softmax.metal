// Softmax and log-softmax over the channels of a pixel, and their gradients. One thread a pixel.

struct Sizes {
    uint pixels;  // of all images
    uint channels;
};

float largest_of(device const Storage* x, uint channels) {
    float largest = float(x[0]);
    for (uint k = 1; k < channels; ++k) {
        largest = max(largest, float(x[k]));
    }
    return largest;
}

kernel void softmax(device const Storage* x [[buffer(0)]],
                    constant Sizes& sizes [[buffer(1)]],
                    device float* y [[buffer(2)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= sizes.pixels) {
        return;
    }
    ulong first = ulong(id) * sizes.channels;
    float largest = largest_of(x + first, sizes.channels);
    BlockedSum sum = {0, 0, 0};
    for (uint k = 0; k < sizes.channels; ++k) {
        float power = precise::exp(float(x[first + k]) - largest);
        sum.add(power);
        y[first + k] = power;
    }
    float total = sum.value();
    for (uint k = 0; k < sizes.channels; ++k) {
        y[first + k] /= total;
    }
}

// The difference from the largest value passes through memory: fast math would be free to compute x - (largest +
// logarithm) otherwise, where the sum loses the digits of the logarithm.
kernel void log_softmax(device const Storage* x [[buffer(0)]],
                        constant Sizes& sizes [[buffer(1)]],
                        device float* l [[buffer(2)]],
                        uint id [[thread_position_in_grid]]) {
    if (id >= sizes.pixels) {
        return;
    }
    ulong first = ulong(id) * sizes.channels;
    float largest = largest_of(x + first, sizes.channels);
    BlockedSum sum = {0, 0, 0};
    for (uint k = 0; k < sizes.channels; ++k) {
        float below = float(x[first + k]) - largest;
        sum.add(precise::exp(below));
        l[first + k] = below;
    }
    float logarithm = precise::log(sum.value());
    for (uint k = 0; k < sizes.channels; ++k) {
        l[first + k] -= logarithm;
    }
}

// dx = y * (g - sum(g * y))
kernel void softmax_gradient(device const Gradient* g [[buffer(0)]],
                             device const Storage* y [[buffer(1)]],
                             constant Sizes& sizes [[buffer(2)]],
                             device float* dx [[buffer(3)]],
                             uint id [[thread_position_in_grid]]) {
    if (id >= sizes.pixels) {
        return;
    }
    ulong first = ulong(id) * sizes.channels;
    BlockedSum sum = {0, 0, 0};
    for (uint k = 0; k < sizes.channels; ++k) {
        sum.add(float(g[first + k]) * float(y[first + k]));
    }
    float total = sum.value();
    for (uint k = 0; k < sizes.channels; ++k) {
        dx[first + k] = float(y[first + k]) * (float(g[first + k]) - total);
    }
}

// dx = g - exp(l) * sum(g)
kernel void log_softmax_gradient(device const Gradient* g [[buffer(0)]],
                                 device const Storage* l [[buffer(1)]],
                                 constant Sizes& sizes [[buffer(2)]],
                                 device float* dx [[buffer(3)]],
                                 uint id [[thread_position_in_grid]]) {
    if (id >= sizes.pixels) {
        return;
    }
    ulong first = ulong(id) * sizes.channels;
    BlockedSum sum = {0, 0, 0};
    for (uint k = 0; k < sizes.channels; ++k) {
        sum.add(float(g[first + k]));
    }
    float total = sum.value();
    for (uint k = 0; k < sizes.channels; ++k) {
        dx[first + k] = float(g[first + k]) - precise::exp(float(l[first + k])) * total;
    }
}
