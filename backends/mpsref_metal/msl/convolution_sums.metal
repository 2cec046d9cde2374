// The gradient of a convolution's weights: sums over all pixels of the source gradient, in two stages.
//
// `rows` and `columns` hold, for each row and column of the gradient and each tap, the row or column that it reads of
// the source, or -1 where the tap reads nothing. First each thread adds up one chunk of lines for a tile of weights
// that it keeps in registers; then `finish` adds up the chunks in their order.

#ifndef SPECIALIZED
constant constexpr uint TILE = 4;  // output channels, and input channels, of a tile
#endif

constant constexpr uint LONGEST = 1024;  // additions in sequence

struct WeightSums {
    uint count;           // threads
    uint lines;           // rows of the gradient, of all images
    uint height;          // of the gradient
    uint width;
    uint groups;
    uint outputs;         // channels of the gradient in a group
    uint inputs;          // channels of the source in a group
    uint source_height;
    uint source_width;
    uint kernel_height;
    uint kernel_width;
    uint chunk;           // lines that one thread adds up
};

// First stage: for each chunk of lines, the sum over the pixels of g[pixel, o] * x[what the tap reads, c].
kernel void weight_sums(device const Gradient* g [[buffer(0)]],
                        device const Storage* source [[buffer(1)]],
                        device const int* rows [[buffer(2)]],
                        device const int* columns [[buffer(3)]],
                        constant WeightSums& sums [[buffer(4)]],
                        device float* partial [[buffer(5)]],
                        uint id [[thread_position_in_grid]]) {
    if (id >= sums.count) {
        return;
    }
    uint input_blocks = (sums.inputs + TILE - 1) / TILE;
    uint output_blocks = (sums.outputs + TILE - 1) / TILE;
    uint taps = sums.kernel_height * sums.kernel_width;
    uint first_input = id % input_blocks * TILE;
    uint rest = id / input_blocks;
    uint first_output = rest % output_blocks * TILE;
    rest /= output_blocks;
    uint group = rest % sums.groups;
    rest /= sums.groups;
    uint tap = rest % taps;
    uint chunk = rest / taps;

    // Past the end of the group the last channel is added up again, but not stored.
    uint output[TILE];
    for (uint o = 0; o < TILE; ++o) {
        output[o] = group * sums.outputs + min(first_output + o, sums.outputs - 1);
    }
    uint input[TILE];
    for (uint c = 0; c < TILE; ++c) {
        input[c] = group * sums.inputs + min(first_input + c, sums.inputs - 1);
    }
    float total[TILE][TILE] = {};
    float block[TILE][TILE] = {};
    uint taken = 0;

    uint end = min((chunk + 1) * sums.chunk, sums.lines);
    for (uint line = chunk * sums.chunk; line < end; ++line) {
        int row = rows[line % sums.height * sums.kernel_height + tap / sums.kernel_width];
        if (row < 0) {
            continue;
        }
        for (uint k = 0; k < sums.width; ++k) {
            int column = columns[k * sums.kernel_width + tap % sums.kernel_width];
            if (column < 0) {
                continue;
            }
            ulong to = (ulong(line) * sums.width + k) * sums.groups * sums.outputs;
            ulong from = index_of(line / sums.height, sums.source_height, sums.source_width, row, column,
                                  sums.groups * sums.inputs, 0);
            float value[TILE];
            for (uint c = 0; c < TILE; ++c) {
                value[c] = source[from + input[c]];
            }
            for (uint o = 0; o < TILE; ++o) {
                float gradient = g[to + output[o]];
                for (uint c = 0; c < TILE; ++c) {
                    block[o][c] += gradient * value[c];
                }
            }
            taken += 1;
            if (taken == LONGEST) {
                for (uint o = 0; o < TILE; ++o) {
                    for (uint c = 0; c < TILE; ++c) {
                        total[o][c] += block[o][c];
                        block[o][c] = 0;
                    }
                }
                taken = 0;
            }
        }
    }
    for (uint o = 0; o < TILE; ++o) {
        for (uint c = 0; c < TILE; ++c) {
            if (first_output + o < sums.outputs && first_input + c < sums.inputs) {
                ulong row = ulong(chunk) * sums.groups * sums.outputs + output[o];
                partial[(row * taps + tap) * sums.inputs + first_input + c] = total[o][c] + block[o][c];
            }
        }
    }
}
