// Convolution with one channel of source and result in each group, and its data gradient: a gather with weights.
//
// `rows` and `columns` hold, for each row and column of the result and each tap, the row or column of the source, or -1.

#ifndef SPECIALIZED
#define Weight float  // what the weights hold: (taps, channels)
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
