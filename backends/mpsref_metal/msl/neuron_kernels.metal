// Neurons on images: y = f(x), dx = g * f'(x), and the gradient of the slopes of PReLU.

struct NeuronSizes {
    uint count;  // threads that compute something
    Divisor channels;
    uint pixels;      // of all images
    uint in_a_chunk;  // pixels that one thread adds up
};

kernel void forward(device const Storage* x [[buffer(0)]],
                    device const float* neuron [[buffer(1)]],
                    constant NeuronSizes& sizes [[buffer(2)]],
                    device Values* y [[buffer(3)]],
                    uint id [[thread_position_in_grid]]) {
    if (id < sizes.count) {
        y[id] = neuron_value(Values(x[id]), remainder(id, sizes.channels), neuron);
    }
}

kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Storage* x [[buffer(1)]],
                     device const float* neuron [[buffer(2)]],
                     constant NeuronSizes& sizes [[buffer(3)]],
                     device Values* dx [[buffer(4)]],
                     uint id [[thread_position_in_grid]]) {
    if (id < sizes.count) {
        dx[id] = Values(g[id]) * neuron_slope(Values(x[id]), remainder(id, sizes.channels), neuron);
    }
}

// The sums of g * x over the negative x of a chunk of the pixels; one thread for each chunk and pack.
kernel void parameter_gradient(device const Gradient* g [[buffer(0)]],
                               device const Storage* x [[buffer(1)]],
                               constant NeuronSizes& sizes [[buffer(2)]],
                               device Values* sums [[buffer(3)]],
                               uint id [[thread_position_in_grid]]) {
    if (id >= sizes.count) {
        return;
    }
    uint chunk = quotient(id, sizes.channels);
    uint channel = id - chunk * sizes.channels.value;
    uint first = chunk * sizes.in_a_chunk;
    uint last = min(first + sizes.in_a_chunk, sizes.pixels);
    Values sum = Values(0.0f);
    for (uint pixel = first; pixel < last; ++pixel) {
        Index at = Index(pixel) * sizes.channels.value + channel;
        Values value = Values(x[at]);
        sum += select(Values(0.0f), Values(g[at]) * value, value < 0.0f);
    }
    sums[id] = sum;
}
