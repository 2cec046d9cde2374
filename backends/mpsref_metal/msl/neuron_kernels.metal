// Neurons on images: y = f(x), dx = g * f'(x), and the gradient for the slopes of PReLU.

struct Sizes {
    uint count;  // threads that have something to do
    Divisor channels;
    uint pixels;     // of all images
    uint in_a_part;  // pixels that one thread adds up
};

kernel void forward(device const Storage* x [[buffer(0)]],
                    device const float* neuron [[buffer(1)]],
                    constant Sizes& sizes [[buffer(2)]],
                    device Values* y [[buffer(3)]],
                    uint id [[thread_position_in_grid]]) {
    if (id < sizes.count) {
        y[id] = neuron_value(Values(x[id]), remainder(id, sizes.channels), neuron);
    }
}

kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Storage* x [[buffer(1)]],
                     device const float* neuron [[buffer(2)]],
                     constant Sizes& sizes [[buffer(3)]],
                     device Values* dx [[buffer(4)]],
                     uint id [[thread_position_in_grid]]) {
    if (id < sizes.count) {
        dx[id] = Values(g[id]) * neuron_slope(Values(x[id]), remainder(id, sizes.channels), neuron);
    }
}

// One thread for WIDTH channels and a part of the pixels.
kernel void parameter_gradient(device const Gradient* g [[buffer(0)]],
                               device const Storage* x [[buffer(1)]],
                               constant Sizes& sizes [[buffer(2)]],
                               device Values* sums [[buffer(3)]],
                               uint id [[thread_position_in_grid]]) {
    if (id >= sizes.count) {
        return;
    }
    uint part = quotient(id, sizes.channels);
    uint channel = id - part * sizes.channels.value;
    uint first = part * sizes.in_a_part;
    uint last = min(first + sizes.in_a_part, sizes.pixels);
    Values sum = Values(0.0f);
    for (uint pixel = first; pixel < last; ++pixel) {
        Index at = Index(pixel) * sizes.channels.value + channel;
        Values value = Values(x[at]);
        sum += select(Values(0.0f), Values(g[at]) * value, value < 0.0f);
    }
    sums[id] = sum;
}
