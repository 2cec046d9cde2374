// Convolution with one channel of source and result in each group, and its data gradient: a gather with weights.
//
// `rows` and `columns` hold, for each row and column of the result and each tap, the row or column of the source, or -1.

#ifndef SPECIALIZED
#define Weight float                      // what the weights hold: (taps, channels)
constant constexpr uint TAPS_Y = 3;  // of the kernel, for `depthwise_sums`
constant constexpr uint TAPS_X = 3;
#endif

struct Depthwise {
    Problem problem;
    uint kernel_height;
    uint kernel_width;
};

// result[pixel, c] = neuron(biases[c] + sum over the taps at the pixel of source[what the tap reads, c] * weights[tap, c])
kernel void depthwise(device const Storage* source [[buffer(0)]],
                      device const Weight* weights [[buffer(1)]],
                      device const Values* biases [[buffer(2)]],
                      device const int* rows [[buffer(3)]],
                      device const int* columns [[buffer(4)]],
                      device const float* neuron [[buffer(5)]],
                      constant Depthwise& filter [[buffer(6)]],
                      device Values* result [[buffer(7)]],
                      uint id [[thread_position_in_grid]]) {
    constant Problem& problem = filter.problem;
    if (id >= problem.count) {
        return;
    }
    Place at = place_of(id, problem);
    BlockedSum sum = empty_sum();
    for (uint y = 0; y < filter.kernel_height; ++y) {
        int row = rows[at.row * filter.kernel_height + y];
        for (uint x = 0; row >= 0 && x < filter.kernel_width; ++x) {
            int column = columns[at.column * filter.kernel_width + x];
            if (column >= 0) {
                Index from = index_of(at.image, problem.source_height, problem.source_width, row, column,
                                      problem.channels, at.channel);
                sum.add(Values(source[from]) *
                        Values(weights[(y * filter.kernel_width + x) * problem.channels + at.channel]));
            }
        }
    }
    result[id] = neuron_value(sum.value() + biases[at.channel], at.channel, neuron);
}

struct DepthwiseSums {
    uint count;     // threads
    uint lines;     // rows of the gradient, of all images
    uint height;    // of the gradient
    uint width;
    uint channels;  // packs
    uint source_height;
    uint source_width;
    uint chunk;  // lines that one thread adds up, with at most 1024 pixels
};

// For each chunk of lines, the sums over the pixels of g[pixel, c] * source[what the tap reads, c], for all taps.
kernel void depthwise_sums(device const Gradient* g [[buffer(0)]],
                           device const Storage* source [[buffer(1)]],
                           device const int* rows [[buffer(2)]],
                           device const int* columns [[buffer(3)]],
                           constant DepthwiseSums& sums [[buffer(4)]],
                           device Values* partial [[buffer(5)]],
                           uint id [[thread_position_in_grid]]) {
    if (id >= sums.count) {
        return;
    }
    uint chunk = id / sums.channels;
    uint channel = id - chunk * sums.channels;
    Values total[TAPS_Y * TAPS_X];
    for (uint tap = 0; tap < TAPS_Y * TAPS_X; ++tap) {
        total[tap] = Values(0.0f);
    }
    uint end = min((chunk + 1) * sums.chunk, sums.lines);
    for (uint line = chunk * sums.chunk; line < end; ++line) {
        uint image = line / sums.height;
        uint at = line - image * sums.height;
        for (uint k = 0; k < sums.width; ++k) {
            Values gradient = Values(g[(Index(line) * sums.width + k) * sums.channels + channel]);
            for (uint y = 0; y < TAPS_Y; ++y) {
                int row = rows[at * TAPS_Y + y];
                for (uint x = 0; x < TAPS_X; ++x) {
                    int column = columns[k * TAPS_X + x];
                    if (row >= 0 && column >= 0) {
                        total[y * TAPS_X + x] += gradient * Values(source[index_of(image, sums.source_height,
                                                                                   sums.source_width, row, column,
                                                                                   sums.channels, channel)]);
                    }
                }
            }
        }
    }
    for (uint tap = 0; tap < TAPS_Y * TAPS_X; ++tap) {
        partial[(chunk * TAPS_Y * TAPS_X + tap) * sums.channels + channel] = total[tap];
    }
}
