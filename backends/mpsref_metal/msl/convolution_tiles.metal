// Forward convolution and its data gradient as a product of matrices, in tiles: the rows are pixels of the result, the
// columns its channels, and the terms are the taps with the channels of the source. No matrix is stored: threads look
// up what a tap of their pixel reads when they fill a tile. `filtered` in convolution.metal is the simple form.
//
// A launch computes the pixels at distances of `step` from `top` and `left`, which have the same taps: `rows` and
// `columns` hold, for each of its rows and columns and each of these taps, the row or column of the source, or -1.

#ifndef SPECIALIZED
constant constexpr bool ALONG = false;  // weights are (inputs, taps, outputs), else (outputs, taps, inputs)
constant constexpr bool SAME = false;   // the only tap reads the pixel of the result, without the tables
#endif

struct Tap {
    uint number;  // in the weights
    uint y;       // in the table of the rows
    uint x;       // in the table of the columns
};

struct Launch {
    uint pixels;  // that are computed, in all images
    uint height;  // rows of these pixels
    uint width;   // columns of these pixels
    uint top;     // their first row in the result
    uint left;    // their first column in the result
    uint step_y;  // the distance of their rows in the result
    uint step_x;  // the distance of their columns in the result
    uint result_height;
    uint result_width;
    uint groups;
    uint outputs;  // channels of the result in a group
    uint inputs;   // channels of the source in a group
    uint source_height;
    uint source_width;
    uint taps;  // of these pixels
    uint taps_y;
    uint taps_x;
    uint kernel_taps;  // of the weights
    uint chunk;        // terms of a threadgroup; `fold` adds up the sums of chunks
    uint tiles_m;
    uint tiles_n;
    uint size;        // elements of the result
    uint is_aligned;  // whether four channels of the result are aligned
};

// A pixel of the result for which a thread reads the source; row and column are those of the launch.
struct Pixel {
    uint image;
    uint row;
    uint column;
    bool is_read;
    Index start;  // index of the first pack of the source pixel that the tap reads
};

void look_up(thread Pixel& pixel, Tap tap, uint group, device const int* rows, device const int* columns,
             constant Launch& launch) {
    int row = rows[pixel.row * launch.taps_y + tap.y];
    int column = columns[pixel.column * launch.taps_x + tap.x];
    uint packs = launch.inputs / WIDTH;
    pixel.is_read = row >= 0 && column >= 0;
    pixel.start = index_of(pixel.image, launch.source_height, launch.source_width, row, column, launch.groups * packs,
                           group * packs);
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
                     constant Launch& launch [[buffer(6)]],
                     device float* result [[buffer(7)]],
                     uint tile [[threadgroup_position_in_grid]],
                     uint member [[thread_position_in_threadgroup]]) {
    constexpr uint packs_k = TILE_K / WIDTH;             // of a pixel in a tile
    constexpr uint pixels = TILE_M * packs_k / THREADS;  // packs of the source that a thread reads for a tile
    constexpr uint others = TILE_N * TILE_K / OTHER_WIDTH / THREADS;  // packs of the weights
    constexpr uint others_k = TILE_K / OTHER_WIDTH;                   // of a row of the weights in a tile
    constexpr uint readers = THREADS / TILE_K;                        // of a term of the weights, if ALONG
    threadgroup float4 left_tiles[2 * TILE_K * M_ROW / 4];
    threadgroup float4 right_tiles[2 * TILE_K * N_ROW / 4];
    threadgroup float* left = (threadgroup float*)left_tiles;
    threadgroup float* right = (threadgroup float*)right_tiles;

    uint first_n = tile % launch.tiles_n * TILE_N;
    uint first_m = tile / launch.tiles_n % launch.tiles_m * TILE_M;
    uint rest = tile / launch.tiles_n / launch.tiles_m;
    uint group = rest % launch.groups;
    uint chunk = rest / launch.groups;
    uint outputs = launch.outputs;
    uint inputs = launch.inputs;
    uint count = launch.taps;
    uint kernel_taps = SAME ? 1 : launch.kernel_taps;
    uint first = chunk * launch.chunk;
    uint end = min(first + launch.chunk, count * inputs);

    // What a thread reads next of the source: a pack, at a tap of several pixels.
    uint packs = inputs / WIDTH;
    uint pack = first / WIDTH + member % packs_k;
    uint tap = 0;
    if (!SAME) {
        tap = pack / packs;
        pack -= tap * packs;
    }
    Pixel pixel[pixels];
#pragma clang loop unroll(full)
    for (uint i = 0; i < pixels; ++i) {
        // Past the end the last pixel is computed again, and not stored.
        uint m = min(first_m + (member + i * THREADS) / packs_k, launch.pixels - 1);
        if (SAME) {
            pixel[i].start = (Index(m) * launch.groups + group) * packs;
            continue;
        }
        Place at = place_in(m, launch.height, launch.width, 1);
        pixel[i] = {at.image, at.row, at.column, false, 0};
        if (tap < count) {
            look_up(pixel[i], taps[tap], group, rows, columns, launch);
        }
    }
    // What it reads next of the weights: a channel, at a tap, for channels of the result that are `distance` apart.
    uint term = ALONG ? member / readers : member % others_k * OTHER_WIDTH;  // the row of the tile
    uint column = ALONG ? member % readers * OTHER_WIDTH : member / others_k;
    constexpr uint distance = ALONG ? readers * OTHER_WIDTH : THREADS / others_k;
    uint channel = SAME ? first + term : (first + term) % inputs;
    uint other_tap = SAME ? 0 : (first + term) / inputs;
    uint number = SAME ? 0 : taps[min(other_tap, max(count, 1u) - 1)].number;
    Position at = position_of(member);
    for (uint begin = first; begin == first || begin < end; begin += LONGEST) {
        uint stop = min(begin + LONGEST, end);
        Sums sums;
        clear(sums);
        uint half_of = 0;
        // Read the values of the next terms, multiply the tiles of the terms before, and fill the other tiles.
        for (uint k = begin; k < stop + TILE_K; k += TILE_K) {
            Values read[pixels];
            Others weight[others];
            bool fills = k < stop;
            if (fills) {
#pragma clang loop unroll(full)
                for (uint i = 0; i < pixels; ++i) {
                    read[i] = Values(0.0f);
                    if (SAME ? pack < packs : pixel[i].is_read) {
                        read[i] = Values(source[pixel[i].start + pack]);
                    }
                }
#pragma clang loop unroll(full)
                for (uint i = 0; i < others; ++i) {
                    uint n = first_n + column + i * distance;
                    weight[i] = Others(0.0f);
                    if ((SAME ? channel < inputs : other_tap < count) && n < outputs) {
                        Index from = ALONG ? ((Index(group) * inputs + channel) * kernel_taps + number) * outputs + n
                                           : ((Index(group) * outputs + n) * kernel_taps + number) * inputs + channel;
                        weight[i] = Others(weights[from / OTHER_WIDTH]);
                    }
                }
            }
            if (k > begin) {
                multiply(left + half_of * TILE_K * M_ROW, right + half_of * TILE_K * N_ROW, at, sums);
                half_of = 1 - half_of;
            }
            if (fills) {
#pragma clang loop unroll(full)
                for (uint i = 0; i < pixels; ++i) {
                    uint slot = member + i * THREADS;
                    uint row = half_of * TILE_K + slot % packs_k * WIDTH;
                    put_down(left + row * M_ROW + slot / packs_k, M_ROW, read[i]);
                }
#pragma clang loop unroll(full)
                for (uint i = 0; i < others; ++i) {
                    threadgroup float* to = right + (half_of * TILE_K + term) * N_ROW + column + i * distance;
                    if (ALONG) {
                        put_along(to, weight[i]);
                    } else {
                        put_down(to, N_ROW, weight[i]);
                    }
                }
                pack += packs_k;
                if (!SAME && pack >= packs) {
                    while (pack >= packs) {
                        pack -= packs;
                        tap += 1;
                    }
                    Tap next = taps[min(tap, count - 1)];
#pragma clang loop unroll(full)
                    for (uint i = 0; i < pixels; ++i) {
                        look_up(pixel[i], next, group, rows, columns, launch);
                        pixel[i].is_read = pixel[i].is_read && tap < count;
                    }
                }
                channel += TILE_K;
                if (!SAME && channel >= inputs) {
                    while (channel >= inputs) {
                        channel -= inputs;
                        other_tap += 1;
                    }
                    number = taps[min(other_tap, count - 1)].number;
                }
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        float4 bias[2] = {float4(0.0f), float4(0.0f)};
#pragma clang loop unroll(full)
        for (uint j = 0; j < 8; ++j) {
            uint n = first_n + column_of(j, at);
            bias[j / 4][j % 4] = begin == 0 && n < outputs ? biases[group * outputs + n] : 0.0f;
        }
#pragma clang loop unroll(full)
        for (uint i = 0; i < ROWS; ++i) {
            uint m = first_m + row_of(i, at);
            if (m >= launch.pixels) {
                continue;
            }
            Place to = place_in(m, launch.height, launch.width, 1);
            Index row = index_of(to.image, launch.result_height, launch.result_width,
                                 int(launch.top + launch.step_y * to.row), int(launch.left + launch.step_x * to.column),
                                 launch.groups * outputs, group * outputs);
#pragma clang loop unroll(full)
            for (uint j = 0; j < 2; ++j) {
                uint n = first_n + column_of(4 * j, at);
                if (n < outputs) {
                    store(result + Index(chunk) * launch.size + row + n, sums.of[i][j] + bias[j], outputs - n,
                          launch.is_aligned, begin == first);
                }
            }
        }
    }
}
