// The gradients of a convolution's weights and biases: sums over all pixels of the source gradient, in two stages.
//
// `rows` and `columns` hold, for each row and column of the gradient and each tap, the row or column that it reads of
// the source, or -1 where there is nothing. First each thread adds up one chunk of lines for a tile of weights that it
// keeps in registers; then the chunks are added up in their order.

#ifndef SPECIALIZED
constant constexpr uint OUTPUTS = 4;  // output channels of a tile
constant constexpr uint INPUTS = 4;   // input channels of a tile
#endif

constant constexpr uint LONGEST = 1024;  // additions in sequence

struct Sums {
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
                        constant Sums& sums [[buffer(4)]],
                        device float* partial [[buffer(5)]],
                        uint id [[thread_position_in_grid]]) {
    if (id >= sums.count) {
        return;
    }
    uint input_blocks = (sums.inputs + INPUTS - 1) / INPUTS;
    uint output_blocks = (sums.outputs + OUTPUTS - 1) / OUTPUTS;
    uint taps = sums.kernel_height * sums.kernel_width;
    uint first_input = id % input_blocks * INPUTS;
    uint rest = id / input_blocks;
    uint first_output = rest % output_blocks * OUTPUTS;
    rest /= output_blocks;
    uint group = rest % sums.groups;
    rest /= sums.groups;
    uint tap = rest % taps;
    uint chunk = rest / taps;

    // Past the end of the group the last channel is added up again, and not stored.
    uint output[OUTPUTS];
    for (uint o = 0; o < OUTPUTS; ++o) {
        output[o] = group * sums.outputs + min(first_output + o, sums.outputs - 1);
    }
    uint input[INPUTS];
    for (uint c = 0; c < INPUTS; ++c) {
        input[c] = group * sums.inputs + min(first_input + c, sums.inputs - 1);
    }
    float total[OUTPUTS][INPUTS] = {};
    float block[OUTPUTS][INPUTS] = {};
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
            float value[INPUTS];
            for (uint c = 0; c < INPUTS; ++c) {
                value[c] = source[from + input[c]];
            }
            for (uint o = 0; o < OUTPUTS; ++o) {
                float gradient = g[to + output[o]];
                for (uint c = 0; c < INPUTS; ++c) {
                    block[o][c] += gradient * value[c];
                }
            }
            taken += 1;
            if (taken == LONGEST) {
                for (uint o = 0; o < OUTPUTS; ++o) {
                    for (uint c = 0; c < INPUTS; ++c) {
                        total[o][c] += block[o][c];
                        block[o][c] = 0;
                    }
                }
                taken = 0;
            }
        }
    }
    for (uint o = 0; o < OUTPUTS; ++o) {
        for (uint c = 0; c < INPUTS; ++c) {
            if (first_output + o < sums.outputs && first_input + c < sums.inputs) {
                ulong row = ulong(chunk) * sums.groups * sums.outputs + output[o];
                partial[(row * taps + tap) * sums.inputs + first_input + c] = total[o][c] + block[o][c];
            }
        }
    }
}

// First stage for the biases: for each chunk of lines, the sum over the pixels of g[pixel, o].
kernel void bias_sums(device const Gradient* g [[buffer(0)]],
                      constant Sums& sums [[buffer(1)]],
                      device float* partial [[buffer(2)]],
                      uint id [[thread_position_in_grid]]) {
    if (id >= sums.count) {
        return;
    }
    uint channels = sums.groups * sums.outputs;
    uint end = min((id / channels + 1) * sums.chunk, sums.lines) * sums.width;
    BlockedSum sum = empty_sum();
    for (uint pixel = id / channels * sums.chunk * sums.width; pixel < end; ++pixel) {
        sum.add(float(g[ulong(pixel) * channels + id % channels]));
    }
    partial[id] = sum.value();
}

struct Total {
    uint count;   // of results
    uint chunks;  // at most LONGEST
};

// Second stage: the sum of the chunks, in their order.
kernel void total(device const float* partial [[buffer(0)]],
                  constant Total& shape [[buffer(1)]],
                  device float* result [[buffer(2)]],
                  uint id [[thread_position_in_grid]]) {
    if (id >= shape.count) {
        return;
    }
    float sum = 0;
    for (uint chunk = 0; chunk < shape.chunks; ++chunk) {
        sum += partial[ulong(chunk) * shape.count + id];
    }
    result[id] = sum;
}
