// Convolution with one channel of source and result in each group, and its data gradient: a gather with weights.
//
// `rows` and `columns` hold, for each row and column of the result and each tap, the row or column of the source, or
// -1. A thread computes PIXELS pixels in a row. Tap SHIFT + x of a pixel reads the same column as tap x of the next
// pixel, as with the stride SHIFT: a thread reads each column once.

#ifndef SPECIALIZED
#define Weight float                 // what the weights hold: (taps, channels)
constant constexpr uint TAPS_Y = 3;  // of the kernel
constant constexpr uint TAPS_X = 3;
constant constexpr uint SHIFT = 3;  // TAPS_X: pixels share no columns
constant constexpr uint PIXELS = 4;
constant constexpr uint PACKS = 8;  // of PACKS * ROWS neighbouring threads, which share what they read
#endif

constant constexpr uint ROWS = 4;
constant constexpr uint READ = (PIXELS - 1) * SHIFT + TAPS_X;  // columns that a thread reads

// Which columns of the source a thread reads for its pixels from `left`, -1 for those after `width`.
void columns_of(uint left, uint width, device const int* columns, thread int* read) {
#pragma clang loop unroll(full)
    for (uint p = 0; p < PIXELS; ++p) {
#pragma clang loop unroll(full)
        for (uint x = p == 0 ? 0 : TAPS_X - SHIFT; x < TAPS_X; ++x) {
            read[p * SHIFT + x] = left + p < width ? columns[(left + p) * TAPS_X + x] : -1;
        }
    }
}

struct Depthwise {
    uint count;  // threads
    uint packs;  // of a pixel
    uint height;  // of the result
    uint width;
    uint source_height;
    uint source_width;
};

// result[pixel, c] = neuron(biases[c] + sum over the taps of source[what the tap reads, c] * weights[tap, c])
kernel void depthwise(device const Storage* source [[buffer(0)]],
                      device const Weight* weights [[buffer(1)]],
                      device const Values* biases [[buffer(2)]],
                      device const int* rows [[buffer(3)]],
                      device const int* columns [[buffer(4)]],
                      device const float* neuron [[buffer(5)]],
                      constant Depthwise& filter [[buffer(6)]],
                      device Values* result [[buffer(7)]],
                      uint id [[thread_position_in_grid]]) {
    if (id >= filter.count) {
        return;
    }
    uint lane = id % (PACKS * ROWS);
    Place at = place_in(id / (PACKS * ROWS), (filter.packs + PACKS - 1) / PACKS, (filter.height + ROWS - 1) / ROWS,
                        (filter.width + PIXELS - 1) / PIXELS);
    uint pack = at.row * PACKS + lane % PACKS;
    uint line = at.column * ROWS + lane / PACKS;
    uint left = at.channel * PIXELS;
    if (pack >= filter.packs || line >= filter.height) {
        return;
    }
    int column[READ];
    columns_of(left, filter.width, columns, column);
    BlockedSum sums[PIXELS];
#pragma clang loop unroll(full)
    for (uint p = 0; p < PIXELS; ++p) {
        sums[p] = empty_sum();
    }
    for (uint y = 0; y < TAPS_Y; ++y) {
        int row = rows[line * TAPS_Y + y];
        if (row < 0) {
            continue;
        }
        Index start = index_of(at.image, filter.source_height, filter.source_width, row, 0, filter.packs, pack);
        Values value[READ];
#pragma clang loop unroll(full)
        for (uint i = 0; i < READ; ++i) {
            value[i] = Values(0.0f);
            if (column[i] >= 0) {
                value[i] = Values(source[start + Index(column[i]) * filter.packs]);
            }
        }
#pragma clang loop unroll(full)
        for (uint x = 0; x < TAPS_X; ++x) {
            Values weight = Values(weights[(y * TAPS_X + x) * filter.packs + pack]);
#pragma clang loop unroll(full)
            for (uint p = 0; p < PIXELS; ++p) {
                if (column[p * SHIFT + x] >= 0) {
                    sums[p].add(value[p * SHIFT + x] * weight);
                }
            }
        }
    }
    Index to = index_of(at.image, filter.height, filter.width, line, left, filter.packs, pack);
    bool is_linear = neuron[neuron_type] == 0.0f;
#pragma clang loop unroll(full)
    for (uint p = 0; p < PIXELS; ++p) {
        if (left + p < filter.width) {
            Values sum = sums[p].value() + biases[pack];
            result[to + p * filter.packs] = is_linear ? sum : neuron_value(sum, pack, neuron);
        }
    }
}

struct DepthwiseSums {
    uint count;   // threads
    uint lines;   // rows of the gradient, of all images
    uint height;  // of the gradient
    uint width;
    uint packs;
    uint source_height;
    uint source_width;
    uint chunk;  // lines that one thread adds up, with at most 1024 pixels
    uint tiles;  // of PIXELS pixels in a line
};

// For each chunk of lines and tile of columns: for each tap the sum over the pixels of
// g[pixel, c] * source[what the tap reads, c], then the sum of g[pixel, c].
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
    uint chunk = id / sums.packs;
    uint pack = id - chunk * sums.packs;
    uint left = chunk % sums.tiles * PIXELS;
    uint first = chunk / sums.tiles * sums.chunk;
    int column[READ];
    columns_of(left, sums.width, columns, column);
    Values total[TAPS_Y * TAPS_X + 1];
#pragma clang loop unroll(full)
    for (uint tap = 0; tap < TAPS_Y * TAPS_X + 1; ++tap) {
        total[tap] = Values(0.0f);
    }
    uint end = min(first + sums.chunk, sums.lines);
    for (uint line = first; line < end; ++line) {
        uint image = line / sums.height;
        Values gradient[PIXELS];
#pragma clang loop unroll(full)
        for (uint p = 0; p < PIXELS; ++p) {
            gradient[p] = Values(0.0f);
            if (left + p < sums.width) {
                gradient[p] = Values(g[(Index(line) * sums.width + left + p) * sums.packs + pack]);
            }
            total[TAPS_Y * TAPS_X] += gradient[p];
        }
#pragma clang loop unroll(full)
        for (uint y = 0; y < TAPS_Y; ++y) {
            int row = rows[(line - image * sums.height) * TAPS_Y + y];
            if (row < 0) {
                continue;
            }
            Index start = index_of(image, sums.source_height, sums.source_width, row, 0, sums.packs, pack);
            Values value[READ];
#pragma clang loop unroll(full)
            for (uint i = 0; i < READ; ++i) {
                value[i] = Values(0.0f);
                if (column[i] >= 0) {
                    value[i] = Values(source[start + Index(column[i]) * sums.packs]);
                }
            }
#pragma clang loop unroll(full)
            for (uint p = 0; p < PIXELS; ++p) {
#pragma clang loop unroll(full)
                for (uint x = 0; x < TAPS_X; ++x) {
                    if (column[p * SHIFT + x] >= 0) {
                        total[y * TAPS_X + x] += gradient[p] * value[p * SHIFT + x];
                    }
                }
            }
        }
    }
    Index to = Index(chunk) * (TAPS_Y * TAPS_X + 1) * sums.packs + pack;
#pragma clang loop unroll(full)
    for (uint tap = 0; tap < TAPS_Y * TAPS_X + 1; ++tap) {
        partial[to + tap * sums.packs] = total[tap];
    }
}
