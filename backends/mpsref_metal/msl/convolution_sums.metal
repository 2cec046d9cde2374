// The gradient of a convolution's weights: sums over all pixels of the source gradient, in two stages.
//
// `rows` and `columns` hold, for each row and column of the gradient and each tap, the row or column that it reads of
// the source, or -1 where the tap reads nothing. First each thread adds up one chunk of lines for a pack of weights,
// which are neighbouring channels of the source; then `fold` adds up the chunks.

struct WeightSums {
    uint count;           // threads
    uint lines;           // rows of the gradient, of all images
    uint height;          // of the gradient
    uint width;
    uint channels;
    uint outputs;         // channels of the gradient in a group
    uint inputs;          // packs of the source in a group
    uint source_height;
    uint source_width;
    uint source_channels;  // packs
    uint kernel_height;
    uint kernel_width;
    uint chunk;           // lines that one thread adds up
};

// For each chunk of lines, the sum over the pixels of g[pixel, o] * source[what the tap reads, c].
kernel void weight_sums(device const Gradient* g [[buffer(0)]],
                        device const Storage* source [[buffer(1)]],
                        device const int* rows [[buffer(2)]],
                        device const int* columns [[buffer(3)]],
                        constant WeightSums& sums [[buffer(4)]],
                        device Values* partial [[buffer(5)]],
                        uint id [[thread_position_in_grid]]) {
    if (id >= sums.count) {
        return;
    }
    uint taps = sums.kernel_height * sums.kernel_width;
    uint input = id % sums.inputs;
    uint tap = id / sums.inputs % taps;
    uint output = id / sums.inputs / taps % sums.channels;
    uint chunk = id / sums.inputs / taps / sums.channels;
    uint channel = output / sums.outputs * sums.inputs + input;
    uint end = min((chunk + 1) * sums.chunk, sums.lines);
    BlockedSum sum = empty_sum();
    for (uint line = chunk * sums.chunk; line < end; ++line) {
        int row = rows[line % sums.height * sums.kernel_height + tap / sums.kernel_width];
        if (row < 0) {
            continue;
        }
        for (uint k = 0; k < sums.width; ++k) {
            int column = columns[k * sums.kernel_width + tap % sums.kernel_width];
            if (column >= 0) {
                Index from = index_of(line / sums.height, sums.source_height, sums.source_width, row, column,
                                      sums.source_channels, channel);
                sum.add(float(g[(Index(line) * sums.width + k) * sums.channels + output]) * Values(source[from]));
            }
        }
    }
    partial[id] = sum.value();
}
