// Sums in stages: the sums of chunks are added up in their order, `span` at a time, until one is left.

struct Finish {
    uint count;     // threads
    uint size;      // packs of the result
    uint channels;  // packs
    uint chunks;
    uint span;  // chunks that a thread adds up
};

// result[block, i] = neuron(sum over the chunks c of the block of partial[c, i])
kernel void finish(device const Values* partial [[buffer(0)]],
                   device const float* neuron [[buffer(1)]],
                   constant Finish& shape [[buffer(2)]],
                   device Values* result [[buffer(3)]],
                   uint id [[thread_position_in_grid]]) {
    if (id >= shape.count) {
        return;
    }
    uint block = id / shape.size;
    uint end = min((block + 1) * shape.span, shape.chunks);
    Values sum = Values(0.0f);
    for (uint chunk = block * shape.span; chunk < end; ++chunk) {
        sum += partial[Index(chunk) * shape.size + (id - block * shape.size)];
    }
    result[id] = neuron_value(sum, id % shape.channels, neuron);
}

struct Pixels {
    uint count;  // threads
    uint pixels;
    uint channels;  // packs
    uint chunk;     // pixels that a thread adds up, at most 1024
};

// For each chunk of pixels, the sum of g[pixel, c].
kernel void pixel_sums(device const Gradient* g [[buffer(0)]],
                       constant Pixels& sums [[buffer(1)]],
                       device Values* partial [[buffer(2)]],
                       uint id [[thread_position_in_grid]]) {
    if (id >= sums.count) {
        return;
    }
    uint chunk = id / sums.channels;
    uint end = min((chunk + 1) * sums.chunk, sums.pixels);
    Values sum = Values(0.0f);
    for (uint pixel = chunk * sums.chunk; pixel < end; ++pixel) {
        sum += Values(g[Index(pixel) * sums.channels + (id - chunk * sums.channels)]);
    }
    partial[id] = sum;
}
