// Average pooling, forward and gradient.
//
// Where windows lie, what lies outside the image and what a window is divided by was decided before: `rows` and
// `columns` hold, for each row and column of the result, the run of source indices to add up, and the two vectors
// of factors are 1/N of each axis (0 for a window without a tap inside the image).

struct Run {
    int first;
    int count;
};

// The sum of the source pixels of a run of rows and columns. The factor of a window is that of the result in forward, and
// that of each source pixel in the gradient.
template <bool IS_GRADIENT>
void gather(device const Storage* source, device const Run* rows, device const Run* columns,
            device const float* row_factors, device const float* column_factors, constant Shapes& shapes,
            device Values* result, uint id) {
    if (id >= shapes.count) {
        return;
    }
    Place at = place_of(id, shapes);
    Run vertical = rows[at.row];
    Run horizontal = columns[at.column];
    uint apart = shapes.extent.channels.value;
    BlockedSum sums[TOGETHER];
    for (uint j = 0; j < TOGETHER; ++j) {
        sums[j] = empty_sum();
    }
    for (int i = vertical.first; i < vertical.first + vertical.count; ++i) {
        for (int k = horizontal.first; k < horizontal.first + horizontal.count; ++k) {
            float factor = IS_GRADIENT ? row_factors[i] * column_factors[k] : 1.0f;
            Index from = index_of(at.image, shapes.source_height, shapes.source_width, i, k, shapes.channels,
                                  at.channel);
            for (uint j = 0; j < TOGETHER; ++j) {
                sums[j].add(Values(source[from + j * apart]) * factor);
            }
        }
    }
    float factor = IS_GRADIENT ? 1.0f : row_factors[at.row] * column_factors[at.column];
    for (uint j = 0; j < TOGETHER; ++j) {
        result[first_pack(id, at) + j * apart] = sums[j].value() * factor;
    }
}

// y = (sum of the source pixels of the window inside the image) / N
kernel void forward(device const Storage* x [[buffer(0)]],
                    device const Run* rows [[buffer(1)]],
                    device const Run* columns [[buffer(2)]],
                    device const float* row_factors [[buffer(3)]],
                    device const float* column_factors [[buffer(4)]],
                    constant Shapes& shapes [[buffer(5)]],
                    device Values* y [[buffer(6)]],
                    uint id [[thread_position_in_grid]]) {
    gather<false>(x, rows, columns, row_factors, column_factors, shapes, y, id);
}

// dx = sum over the windows with a tap at this pixel of g / N
kernel void gradient(device const Storage* g [[buffer(0)]],
                     device const Run* rows [[buffer(1)]],
                     device const Run* columns [[buffer(2)]],
                     device const float* row_factors [[buffer(3)]],
                     device const float* column_factors [[buffer(4)]],
                     constant Shapes& shapes [[buffer(5)]],
                     device Values* dx [[buffer(6)]],
                     uint id [[thread_position_in_grid]]) {
    gather<true>(g, rows, columns, row_factors, column_factors, shapes, dx, id);
}
