// Forward convolution and its data gradient, which is the same gather with other tables.
//
// The host computes what a tap reads: `rows` and `columns` hold, for each row and column of the result and each tap,
// the row or column of the source, or -1 where the tap reads nothing. A thread computes a tile of results in registers,
// so that each value that it loads is used several times.

#ifndef SPECIALIZED
constant constexpr uint OUTPUTS = 4;  // output channels of a tile
typedef float Weight;                 // what the weights hold
#endif

constant constexpr uint PIXELS = 4;      // of a tile
constant constexpr uint LONGEST = 1024;  // additions in sequence

struct Filter {
    uint count;           // threads
    uint height;          // of the result
    uint width;
    uint groups;
    uint outputs;         // channels of the result in a group
    uint inputs;          // channels of the source in a group
    uint source_height;
    uint source_width;
    uint kernel_height;
    uint kernel_width;
    uint spread;          // distance of two pixels of a tile, which read the same taps
    uint tiles;           // in a row
};

// result[pixel, o] = neuron(biases[o] + sum over the taps at the pixel, and the channels c of the group of o, of
//                           source[what the tap reads, c] * weights[c, tap, o])
kernel void filtered(device const Storage* source [[buffer(0)]],
                     device const Weight* weights [[buffer(1)]],
                     device const float* biases [[buffer(2)]],
                     device const int* rows [[buffer(3)]],
                     device const int* columns [[buffer(4)]],
                     device const float* neuron [[buffer(5)]],
                     constant Filter& filter [[buffer(6)]],
                     device float* result [[buffer(7)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= filter.count) {
        return;
    }
    uint blocks = (filter.outputs + OUTPUTS - 1) / OUTPUTS;
    uint group = id / blocks % filter.groups;
    uint tile = id / blocks / filter.groups % filter.tiles;
    uint line = id / blocks / filter.groups / filter.tiles;  // image and row
    uint first = id % blocks * OUTPUTS;                      // output channel in the group
    uint left = tile / filter.spread * filter.spread * PIXELS + tile % filter.spread;

    // Past the end of the group the last channel is computed again, but not stored.
    uint channel[OUTPUTS];
    for (uint o = 0; o < OUTPUTS; ++o) {
        channel[o] = group * filter.outputs + min(first + o, filter.outputs - 1);
    }
    float total[PIXELS][OUTPUTS] = {};
    float block[PIXELS][OUTPUTS] = {};
    uint taken = 0;
    uint channels = filter.groups * filter.inputs;
    uint taps = filter.kernel_height * filter.kernel_width;

    for (uint y = 0; y < filter.kernel_height; ++y) {
        int row = rows[line % filter.height * filter.kernel_height + y];
        if (row < 0) {
            continue;
        }
        for (uint x = 0; x < filter.kernel_width; ++x) {
            bool reads[PIXELS];
            ulong start[PIXELS];
            bool any = false;
            for (uint p = 0; p < PIXELS; ++p) {
                uint column = left + p * filter.spread;
                int from = column < filter.width ? columns[column * filter.kernel_width + x] : -1;
                reads[p] = from >= 0;
                start[p] = reads[p] ? index_of(line / filter.height, filter.source_height, filter.source_width, row,
                                               from, channels, group * filter.inputs)
                                    : 0;
                any = any || reads[p];
            }
            if (!any) {
                continue;
            }
            uint tap = y * filter.kernel_width + x;
            for (uint c = 0; c < filter.inputs; ++c) {
                float weight[OUTPUTS];
                for (uint o = 0; o < OUTPUTS; ++o) {
                    weight[o] = weights[(ulong(c) * taps + tap) * filter.groups * filter.outputs + channel[o]];
                }
                for (uint p = 0; p < PIXELS; ++p) {
                    if (reads[p]) {
                        float value = source[start[p] + c];
                        for (uint o = 0; o < OUTPUTS; ++o) {
                            block[p][o] += value * weight[o];
                        }
                    }
                }
                taken += 1;
                if (taken == LONGEST) {
                    for (uint p = 0; p < PIXELS; ++p) {
                        for (uint o = 0; o < OUTPUTS; ++o) {
                            total[p][o] += block[p][o];
                            block[p][o] = 0;
                        }
                    }
                    taken = 0;
                }
            }
        }
    }
    for (uint p = 0; p < PIXELS; ++p) {
        uint column = left + p * filter.spread;
        for (uint o = 0; o < OUTPUTS; ++o) {
            if (column < filter.width && first + o < filter.outputs) {
                ulong at = (ulong(line) * filter.width + column) * filter.groups * filter.outputs + channel[o];
                result[at] = neuron_value(total[p][o] + block[p][o] + biases[channel[o]], channel[o], neuron);
            }
        }
    }
}
