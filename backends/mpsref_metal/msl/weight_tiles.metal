// The gradient of the weights of a convolution as a product of matrices, in tiles. `rows` and `columns` hold, for each
// row and column of the gradient and each tap, the row or column of the source, or -1 where the tap reads nothing.

#ifndef SPECIALIZED
constant constexpr bool SAME = false;  // the only tap reads the pixel of the gradient, without the tables
#endif

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
    uint chunk;  // pixels of a threadgroup; `fold` adds up the sums of chunks
    uint tiles_m;
    uint tiles_n;
    uint size;  // of the weights
    uint is_aligned;  // whether four weights in a row of the result are
};

// A column of the product: a tap, and the first of WIDTH channels of the source in packs.
struct Column {
    bool exists;
    uint tap_y;
    uint tap_x;
    uint channel;
};

// A pixel of the gradient for which a thread reads the source.
struct Reader {
    Place at;
    bool has_line;  // whether the tap reads a row of the source there
    Index line;     // index of the first of these packs in this row
    int column;     // the column that the tap reads, or -1 where it reads nothing
};

void find_line(thread Reader& reader, Column of, device const int* rows, constant Gradients& layer) {
    int row = of.exists ? rows[reader.at.row * layer.kernel_height + of.tap_y] : -1;
    reader.has_line = row >= 0;
    reader.line = index_of(reader.at.image, layer.source_height, layer.source_width, row, 0,
                           layer.groups * layer.inputs / WIDTH, of.channel);
}

void find_column(thread Reader& reader, Column of, device const int* columns, constant Gradients& layer) {
    reader.column = reader.has_line ? columns[reader.at.column * layer.kernel_width + of.tap_x] : -1;
}

// The sum over the pixels of g[pixel, o] * source[what the tap reads, c]: the rows of the product are channels o of the
// gradient, its columns taps and channels c of the source, its terms pixels. `weight_sums` is the simple form.
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

    uint first_n = tile % layer.tiles_n * TILE_N;
    uint first_m = tile / layer.tiles_n % layer.tiles_m * TILE_M;
    uint rest = tile / layer.tiles_n / layer.tiles_m;
    uint group = rest % layer.groups;
    uint chunk = rest / layer.groups;
    uint weights = layer.kernel_height * layer.kernel_width * layer.inputs;  // of an output channel
    uint outputs = layer.outputs;
    uint height = layer.height;
    uint width = layer.width;
    uint first = chunk * layer.chunk;
    uint end = min(first + layer.chunk, layer.pixels);

    // The taps and channels of a thread do not change, its pixels do. It reads the tables one tile ahead.
    constexpr uint places = packs_n > THREADS ? packs_n / THREADS : 1;  // different taps and channels of a thread
    Column of[places];
#pragma clang loop unroll(full)
    for (uint i = 0; i < places; ++i) {
        uint n = first_n + (member + i * THREADS) % packs_n * WIDTH;
        uint tap = n / layer.inputs;
        of[i] = {n < weights, tap / layer.kernel_width, tap % layer.kernel_width,
                 (group * layer.inputs + n % layer.inputs) / WIDTH};
    }
    uint packs = layer.groups * layer.inputs / WIDTH;  // of a pixel of the source
    Reader reader[rights];
#pragma clang loop unroll(full)
    for (uint i = 0; i < rights; ++i) {
        if (SAME) {
            continue;
        }
        reader[i].at = place_in(first + (member + i * THREADS) / packs_n, height, width, 1);
        find_line(reader[i], of[i % places], rows, layer);
        find_column(reader[i], of[i % places], columns, layer);
    }
    Position position = position_of(member);
    for (uint begin = first; begin < end; begin += LONGEST) {
        uint stop = min(begin + LONGEST, end);
        Sums sums;
        clear(sums);
        uint half_of = 0;
        for (uint k = begin; k < stop + TILE_K; k += TILE_K) {
            Others gradient[lefts];
            Values read[rights];
            bool fills = k < stop;
            if (fills) {
#pragma clang loop unroll(full)
                for (uint i = 0; i < lefts; ++i) {
                    uint slot = member + i * THREADS;
                    uint pixel = k + slot / packs_m;
                    uint m = first_m + slot % packs_m * OTHER_WIDTH;
                    gradient[i] = Others(0.0f);
                    if (pixel < stop && m < outputs) {
                        Index from = (Index(pixel) * layer.groups + group) * outputs + m;
                        gradient[i] = Others(g[from / OTHER_WIDTH]);
                    }
                }
#pragma clang loop unroll(full)
                for (uint i = 0; i < rights; ++i) {
                    uint place = i % places;
                    uint pixel = k + (member + i * THREADS) / packs_n;
                    read[i] = Values(0.0f);
                    if (SAME) {
                        if (of[place].exists && pixel < stop) {
                            read[i] = Values(source[Index(pixel) * packs + of[place].channel]);
                        }
                        continue;
                    }
                    if (reader[i].column >= 0 && pixel < stop) {
                        read[i] = Values(source[reader[i].line + Index(reader[i].column) * packs]);
                    }
                    thread Place& at = reader[i].at;
                    at.column += TILE_K;
                    while (at.column >= width) {
                        at.column -= width;
                        at.row += 1;
                        if (at.row == height) {
                            at.row = 0;
                            at.image += 1;
                        }
                    }
                    find_line(reader[i], of[place], rows, layer);  // also if it is the same: a branch would cost more
                    find_column(reader[i], of[place], columns, layer);
                }
            }
            if (k > begin) {
                multiply(left + half_of * TILE_K * M_ROW, right + half_of * TILE_K * N_ROW, position, sums);
                half_of = 1 - half_of;
            }
            if (fills) {
#pragma clang loop unroll(full)
                for (uint i = 0; i < lefts; ++i) {
                    uint slot = member + i * THREADS;
                    put_along(left + (half_of * TILE_K + slot / packs_m) * M_ROW + slot % packs_m * OTHER_WIDTH,
                              gradient[i]);
                }
#pragma clang loop unroll(full)
                for (uint i = 0; i < rights; ++i) {
                    uint slot = member + i * THREADS;
                    put_along(right + (half_of * TILE_K + slot / packs_n) * N_ROW + slot % packs_n * WIDTH, read[i]);
                }
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
#pragma clang loop unroll(full)
        for (uint i = 0; i < ROWS; ++i) {
            uint m = first_m + row_of(i, position);
            if (m >= outputs) {
                continue;
            }
            Index to = Index(chunk) * layer.size + (Index(group) * outputs + m) * weights;
#pragma clang loop unroll(full)
            for (uint j = 0; j < 2; ++j) {
                uint n = first_n + column_of(4 * j, position);
                if (n < weights) {
                    store(partial + to + n, sums.of[i][j], weights - n, layer.is_aligned, begin == first);
                }
            }
        }
    }
}
