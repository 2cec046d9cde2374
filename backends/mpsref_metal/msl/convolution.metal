// Forward convolution and its data gradient, which is the same gather with other tables, as they are written.
//
// The host computes what a tap reads: `rows` and `columns` hold, for each row and column of the result and each tap,
// the row or column of the source, or -1 where the tap reads nothing. A thread computes a pack of channels of a pixel.

#ifndef SPECIALIZED
typedef float Weight;  // what the weights hold
#endif

struct Filter {
    uint count;           // threads
    Extent extent;        // of the result
    uint outputs;         // packs of the result in a group
    uint inputs;          // channels of the source in a group
    uint source_height;
    uint source_width;
    uint source_channels;
    uint kernel_height;
    uint kernel_width;
};

// result[pixel, o] = neuron(biases[o] + sum over the taps at the pixel, and the channels c of the group of o, of
//                           source[what the tap reads, c] * weights[c, tap, o])
kernel void filtered(device const Storage* source [[buffer(0)]],
                     device const Weight* weights [[buffer(1)]],
                     device const Values* biases [[buffer(2)]],
                     device const int* rows [[buffer(3)]],
                     device const int* columns [[buffer(4)]],
                     device const float* neuron [[buffer(5)]],
                     constant Filter& filter [[buffer(6)]],
                     device Values* result [[buffer(7)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= filter.count) {
        return;
    }
    Place at = place_in(id, filter.extent);
    uint channels = filter.extent.channels.value;
    uint input = at.channel / filter.outputs * filter.inputs;
    uint taps = filter.kernel_height * filter.kernel_width;
    BlockedSum sum = empty_sum();
    for (uint tap = 0; tap < taps; ++tap) {
        uint y = tap / filter.kernel_width;
        int row = rows[at.row * filter.kernel_height + y];
        int column = columns[at.column * filter.kernel_width + (tap - y * filter.kernel_width)];
        if (row < 0 || column < 0) {
            continue;
        }
        Index from = index_of(at.image, filter.source_height, filter.source_width, row, column,
                              filter.source_channels, input);
        for (uint c = 0; c < filter.inputs; ++c) {
            sum.add(float(source[from + c]) * Values(weights[(Index(c) * taps + tap) * channels + at.channel]));
        }
    }
    result[id] = neuron_value(sum.value() + biases[at.channel], at.channel, neuron);
}
