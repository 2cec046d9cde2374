// Convolution forward and its data gradient as a product of matrices, in tiles: the rows are pixels of the result, the
// columns its channels, and the terms the channels of the source at each tap. Nothing is unfolded: threads compute where
// a tap of their pixel lies when they fill a tile. `filtered` in convolution.metal is the same in simple form.
//
// A launch computes the pixels at distances of `step` from `top` and `left`, which have the same taps: `rows` and
// `columns` hold, for each of its rows and columns and each of these taps, the row or column of the source, or -1.

#ifndef SPECIALIZED
constant bool ALONG = false;  // weights: (source channels, taps, result channels), else (result, taps, source channels)
#endif

struct Tap {
    uint number;  // in the weights
    uint y;       // in the tables
    uint x;
};

struct Layer {
    uint pixels;  // of this launch, in all images
    uint height;  // rows of this launch
    uint width;
    uint top;  // first row and column in the result, and the distance of the next ones
    uint left;
    uint step_y;
    uint step_x;
    uint result_height;
    uint result_width;
    uint groups;
    uint outputs;  // channels of the result in a group
    uint inputs;   // channels of the source in a group
    uint source_height;
    uint source_width;
    uint taps;  // of this launch
    uint taps_y;
    uint taps_x;
    uint kernel_taps;  // of the weights
    uint chunk;        // terms of a threadgroup; the sums of chunks are added up later
    uint tiles_m;
    uint tiles_n;
    uint size;  // of the result
};

// The values of the source that a thread puts into tiles: those of a pixel, WIDTH channels at a time.
struct Pixel {
    bool exists;
    Place at;      // image, row and column of this launch
    uint tap;
    uint channel;  // pack
    bool is_read;
    Index start;  // of the pack of channel 0, in the source
};

void look_up(thread Pixel& pixel, uint group, device const int* rows, device const int* columns,
             device const Tap* taps, constant Layer& layer) {
    pixel.is_read = false;
    if (pixel.exists && pixel.tap < layer.taps) {
        Tap tap = taps[pixel.tap];
        int row = rows[pixel.at.row * layer.taps_y + tap.y];
        int column = columns[pixel.at.column * layer.taps_x + tap.x];
        if (row >= 0 && column >= 0) {
            uint packs = layer.inputs / WIDTH;
            pixel.is_read = true;
            pixel.start = index_of(pixel.at.image, layer.source_height, layer.source_width, row, column,
                                   layer.groups * packs, group * packs);
        }
    }
}

// result[pixel, o] = biases[o] + sum over the taps at the pixel, and the channels c of the group of o, of
//                    source[what the tap reads, c] * weights[o, tap, c]
[[max_total_threads_per_threadgroup(THREADS)]]
kernel void products(device const Storage* source [[buffer(0)]],
                     device const Other* weights [[buffer(1)]],
                     device const float* biases [[buffer(2)]],
                     device const int* rows [[buffer(3)]],
                     device const int* columns [[buffer(4)]],
                     device const Tap* taps [[buffer(5)]],
                     constant Layer& layer [[buffer(6)]],
                     device float* result [[buffer(7)]],
                     uint tile [[threadgroup_position_in_grid]],
                     uint member [[thread_position_in_threadgroup]]) {
    constexpr uint packs_k = TILE_K / WIDTH;             // of a pixel in a tile
    constexpr uint pixels = TILE_M * packs_k / THREADS;  // packs of the source that a thread reads for a tile
    constexpr uint others_k = TILE_K / OTHER_WIDTH;
    constexpr uint others = TILE_N * others_k / THREADS;
    threadgroup float4 left_tiles[2 * TILE_K * M_ROW / 4];
    threadgroup float4 right_tiles[2 * TILE_K * N_ROW / 4];
    threadgroup float* left = (threadgroup float*)left_tiles;
    threadgroup float* right = (threadgroup float*)right_tiles;

    uint first_n = tile % layer.tiles_n * TILE_N;
    uint first_m = tile / layer.tiles_n % layer.tiles_m * TILE_M;
    uint rest = tile / layer.tiles_n / layer.tiles_m;
    uint group = rest % layer.groups;
    uint chunk = rest / layer.groups;
    uint packs = layer.inputs / WIDTH;
    uint terms = layer.taps * layer.inputs;
    uint first = chunk * layer.chunk;
    uint end = min(first + layer.chunk, terms);

    Pixel pixel[pixels];
    for (uint i = 0; i < pixels; ++i) {
        uint slot = member + i * THREADS;
        uint m = first_m + slot / packs_k;
        uint k = first / WIDTH + slot % packs_k;
        pixel[i].exists = m < layer.pixels;
        pixel[i].at = place_in(min(m, layer.pixels - 1), layer.height, layer.width, 1);
        pixel[i].tap = k / packs;
        pixel[i].channel = k % packs;
        look_up(pixel[i], group, rows, columns, taps, layer);
    }
    // Which column of the tile a thread fills, and the term: by terms first, or by columns first.
    uint column[others];
    uint tap[others];
    uint channel[others];
    for (uint i = 0; i < others; ++i) {
        uint slot = member + i * THREADS;
        uint k = first + (ALONG ? slot / (TILE_N / OTHER_WIDTH) : slot % others_k * OTHER_WIDTH);
        column[i] = ALONG ? slot % (TILE_N / OTHER_WIDTH) * OTHER_WIDTH : slot / others_k;
        tap[i] = k / layer.inputs;
        channel[i] = k % layer.inputs;
    }

    uint down = member / (TILE_N / 8);
    uint along = member % (TILE_N / 8);
    for (uint begin = first; begin == first || begin < end; begin += LONGEST) {
        uint stop = min(begin + LONGEST, end);
        Sums sums;
        clear(sums);
        uint half_of = 0;
        for (uint k = begin; k < stop + TILE_K; k += TILE_K) {
            // Read the values of these terms, multiply those before, and put the new ones into the other tiles.
            Values read[pixels];
            Others weight[others];
            bool fills = k < stop;
            for (uint i = 0; i < pixels; ++i) {
                if (!fills) {
                    break;
                }
                read[i] = Values(0.0f);
                if (pixel[i].is_read) {
                    read[i] = Values(source[pixel[i].start + pixel[i].channel]);
                }
                pixel[i].channel += packs_k;
                if (pixel[i].channel >= packs) {
                    while (pixel[i].channel >= packs) {
                        pixel[i].channel -= packs;
                        pixel[i].tap += 1;
                    }
                    look_up(pixel[i], group, rows, columns, taps, layer);
                }
            }
            for (uint i = 0; i < others; ++i) {
                if (!fills) {
                    break;
                }
                weight[i] = Others(0.0f);
                uint n = first_n + column[i];
                if (tap[i] < layer.taps && n < layer.outputs) {
                    uint number = taps[tap[i]].number;
                    Index at = ALONG ? ((Index(group) * layer.inputs + channel[i]) * layer.kernel_taps + number) *
                                               layer.outputs + n
                                     : ((Index(group) * layer.outputs + n) * layer.kernel_taps + number) *
                                               layer.inputs + channel[i];
                    weight[i] = Others(weights[at / OTHER_WIDTH]);
                }
                channel[i] += TILE_K;
                while (channel[i] >= layer.inputs) {
                    channel[i] -= layer.inputs;
                    tap[i] += 1;
                }
            }
            if (k > begin) {
                multiply(left + half_of * TILE_K * M_ROW, right + half_of * TILE_K * N_ROW, down, along, sums);
                half_of = 1 - half_of;
            }
            for (uint i = 0; i < pixels; ++i) {
                if (!fills) {
                    break;
                }
                uint slot = member + i * THREADS;
                put_down(left + (half_of * TILE_K + slot % packs_k * WIDTH) * M_ROW + slot / packs_k, M_ROW, read[i]);
            }
            for (uint i = 0; i < others; ++i) {
                if (!fills) {
                    break;
                }
                uint slot = member + i * THREADS;
                if (ALONG) {
                    uint row = half_of * TILE_K + slot / (TILE_N / OTHER_WIDTH);
                    put_along(right + row * N_ROW + column[i], weight[i]);
                } else {
                    uint row = half_of * TILE_K + slot % others_k * OTHER_WIDTH;
                    put_down(right + row * N_ROW + column[i], N_ROW, weight[i]);
                }
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        for (uint i = 0; i < 8; ++i) {
            uint m = first_m + place_in_tile(i, down, TILE_M);
            if (m >= layer.pixels) {
                continue;
            }
            Place at = place_in(m, layer.height, layer.width, 1);
            Index row = index_of(at.image, layer.result_height, layer.result_width,
                                 int(layer.top + layer.step_y * at.row), int(layer.left + layer.step_x * at.column),
                                 layer.groups * layer.outputs, group * layer.outputs);
            for (uint j = 0; j < 2; ++j) {
                uint n = first_n + place_in_tile(4 * j, along, TILE_N);
                if (n < layer.outputs) {
                    float4 value = sums.of[i][j];
                    uint count = min(4u, layer.outputs - n);
                    for (uint o = 0; o < 4; ++o) {
                        if (begin == 0 && o < count) {
                            value[o] += biases[group * layer.outputs + n + o];
                        }
                    }
                    store(result + Index(chunk) * layer.size + row + n, value, count, begin == first);
                }
            }
        }
    }
}

struct Finish {
    uint count;     // packs of the result
    uint channels;  // packs
    uint chunks;    // at most LONGEST
};

// The sum of the chunks, in their order, and the neuron.
kernel void finish(device const Values* partial [[buffer(0)]],
                   device const float* neuron [[buffer(1)]],
                   constant Finish& shape [[buffer(2)]],
                   device Values* result [[buffer(3)]],
                   uint id [[thread_position_in_grid]]) {
    if (id >= shape.count) {
        return;
    }
    Values sum = Values(0.0f);
    for (uint chunk = 0; chunk < shape.chunks; ++chunk) {
        sum += partial[Index(chunk) * shape.count + id];
    }
    result[id] = neuron_value(sum, id % shape.channels, neuron);
}

struct Gradients {
    uint pixels;  // of the gradient, in all images
    uint height;  // of the gradient
    uint width;
    uint groups;
    uint outputs;  // channels of the gradient in a group
    uint inputs;   // channels of the source in a group
    uint source_height;
    uint source_width;
    uint kernel_height;
    uint kernel_width;
    uint chunk;  // pixels of a threadgroup; the sums of chunks are added up later
    uint tiles_m;
    uint tiles_n;
    uint size;  // of the weights
};

// The gradient of the weights: rows are channels o of the gradient, columns taps and channels c of the source, terms the
// pixels: the sum over them of g[pixel, o] * source[what the tap reads, c]. `weight_sums` is the same in simple form.
[[max_total_threads_per_threadgroup(THREADS)]]
kernel void weight_products(device const Other* g [[buffer(0)]],
                            device const Storage* source [[buffer(1)]],
                            device const int* rows [[buffer(2)]],
                            device const int* columns [[buffer(3)]],
                            constant Gradients& layer [[buffer(4)]],
                            device float* partial [[buffer(5)]],
                            uint tile [[threadgroup_position_in_grid]],
                            uint member [[thread_position_in_threadgroup]]) {
    constexpr uint packs_m = TILE_M / OTHER_WIDTH;        // of a pixel of the gradient in a tile
    constexpr uint lefts = TILE_K * packs_m / THREADS;    // packs of the gradient that a thread reads for a tile
    constexpr uint packs_n = TILE_N / WIDTH;
    constexpr uint rights = TILE_K * packs_n / THREADS;
    threadgroup float4 left_tiles[2 * TILE_K * M_ROW / 4];
    threadgroup float4 right_tiles[2 * TILE_K * N_ROW / 4];
    threadgroup float* left = (threadgroup float*)left_tiles;
    threadgroup float* right = (threadgroup float*)right_tiles;

    uint columns_of_tile = tile % layer.tiles_n * TILE_N;
    uint first_m = tile / layer.tiles_n % layer.tiles_m * TILE_M;
    uint rest = tile / layer.tiles_n / layer.tiles_m;
    uint group = rest % layer.groups;
    uint chunk = rest / layer.groups;
    uint weights = layer.kernel_height * layer.kernel_width * layer.inputs;  // of an output channel
    uint first = chunk * layer.chunk;
    uint end = min(first + layer.chunk, layer.pixels);

    // Taps and channels stay the same for a thread, pixels move on.
    uint tap_y[rights];
    uint tap_x[rights];
    uint channel[rights];
    bool exists[rights];
    Place at[rights];
    for (uint i = 0; i < rights; ++i) {
        uint slot = member + i * THREADS;
        uint n = columns_of_tile + slot % packs_n * WIDTH;
        uint tap = n / layer.inputs;
        exists[i] = n < weights;
        tap_y[i] = tap / layer.kernel_width;
        tap_x[i] = tap % layer.kernel_width;
        channel[i] = (group * layer.inputs + n % layer.inputs) / WIDTH;
        at[i] = place_in(first + slot / packs_n, layer.height, layer.width, 1);
    }

    uint down = member / (TILE_N / 8);
    uint along = member % (TILE_N / 8);
    for (uint begin = first; begin < end; begin += LONGEST) {
        uint stop = min(begin + LONGEST, end);
        Sums sums;
        clear(sums);
        uint half_of = 0;
        for (uint k = begin; k < stop + TILE_K; k += TILE_K) {
            Others gradient[lefts];
            Values read[rights];
            bool fills = k < stop;
            for (uint i = 0; i < lefts; ++i) {
                if (!fills) {
                    break;
                }
                uint slot = member + i * THREADS;
                uint pixel = k + slot / packs_m;
                uint m = first_m + slot % packs_m * OTHER_WIDTH;
                gradient[i] = Others(0.0f);
                if (pixel < stop && m < layer.outputs) {
                    Index from = (Index(pixel) * layer.groups + group) * layer.outputs + m;
                    gradient[i] = Others(g[from / OTHER_WIDTH]);
                }
            }
            for (uint i = 0; i < rights; ++i) {
                if (!fills) {
                    break;
                }
                uint slot = member + i * THREADS;
                read[i] = Values(0.0f);
                if (exists[i] && k + slot / packs_n < stop) {
                    int row = rows[at[i].row * layer.kernel_height + tap_y[i]];
                    int column = columns[at[i].column * layer.kernel_width + tap_x[i]];
                    if (row >= 0 && column >= 0) {
                        read[i] = Values(source[index_of(at[i].image, layer.source_height, layer.source_width, row,
                                                         column, layer.groups * layer.inputs / WIDTH, channel[i])]);
                    }
                }
                at[i].column += TILE_K;
                while (at[i].column >= layer.width) {
                    at[i].column -= layer.width;
                    at[i].row += 1;
                    if (at[i].row == layer.height) {
                        at[i].row = 0;
                        at[i].image += 1;
                    }
                }
            }
            if (k > begin) {
                multiply(left + half_of * TILE_K * M_ROW, right + half_of * TILE_K * N_ROW, down, along, sums);
                half_of = 1 - half_of;
            }
            for (uint i = 0; i < lefts; ++i) {
                if (!fills) {
                    break;
                }
                uint slot = member + i * THREADS;
                put_along(left + (half_of * TILE_K + slot / packs_m) * M_ROW + slot % packs_m * OTHER_WIDTH,
                          gradient[i]);
            }
            for (uint i = 0; i < rights; ++i) {
                if (!fills) {
                    break;
                }
                uint slot = member + i * THREADS;
                put_along(right + (half_of * TILE_K + slot / packs_n) * N_ROW + slot % packs_n * WIDTH, read[i]);
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        for (uint i = 0; i < 8; ++i) {
            uint m = first_m + place_in_tile(i, down, TILE_M);
            if (m >= layer.outputs) {
                continue;
            }
            Index row = Index(chunk) * layer.size + (Index(group) * layer.outputs + m) * weights;
            for (uint j = 0; j < 2; ++j) {
                uint n = columns_of_tile + place_in_tile(4 * j, along, TILE_N);
                if (n < weights) {
                    store(partial + row + n, sums.of[i][j], min(4u, weights - n), begin == first);
                }
            }
        }
    }
}
