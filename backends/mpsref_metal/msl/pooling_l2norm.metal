// L2-norm pooling, forward and gradient: the root of the sum of squares of each window. The gradient reads the
// reciprocals of the norms of all windows.

Values norm_of(device const Storage* x, Place at, Window vertical, Window horizontal, constant Axis* axes,
               constant Shapes& shapes) {
    BlockedSum squares = empty_sum();
    for (int i = 0; i < groups(vertical); ++i) {
        int row = pixel_of(vertical, axes[0], i);
        for (int k = 0; k < groups(horizontal); ++k) {
            int column = pixel_of(horizontal, axes[1], k);
            if (row >= 0 && column >= 0) {
                Values value = Values(x[index_of(at.image, shapes.source_height, shapes.source_width, row, column,
                                                 shapes.channels, at.channel)]);
                squares.add(value * value * (times_of(vertical, i) * times_of(horizontal, k)));
            }
        }
    }
    return sqrt(squares.value());
}

kernel void forward(device const Storage* x [[buffer(0)]],
                    device const Window* row_windows [[buffer(1)]],
                    device const Window* column_windows [[buffer(2)]],
                    constant Axis* axes [[buffer(3)]],
                    constant Shapes& shapes [[buffer(4)]],
                    device Values* y [[buffer(5)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= shapes.count) {
        return;
    }
    Place at = place_of(id, shapes);
    y[id] = norm_of(x, at, row_windows[at.row], column_windows[at.column], axes, shapes);
}

// 1 / norm of each window, and 0 for a norm of 0, which contributes nothing.
kernel void reciprocals(device const Storage* x [[buffer(0)]],
                        device const Window* row_windows [[buffer(1)]],
                        device const Window* column_windows [[buffer(2)]],
                        constant Axis* axes [[buffer(3)]],
                        constant Shapes& shapes [[buffer(4)]],
                        device Values* inverse [[buffer(5)]],
                        uint id [[thread_position_in_grid]]) {
    if (id >= shapes.count) {
        return;
    }
    Place at = place_of(id, shapes);
    Values norm = norm_of(x, at, row_windows[at.row], column_windows[at.column], axes, shapes);
    inverse[id] = select(Values(0.0f), 1.0f / norm, norm > Values(0.0f));
}

// dx = sum over the windows that read this pixel of g * times * (x / norm). `row_times` and `column_times` hold, for
// each window of the candidates, how many of its taps read the pixel.
kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Storage* x [[buffer(1)]],
                     device const Values* inverse [[buffer(2)]],
                     device const Candidates* row_candidates [[buffer(3)]],
                     device const Candidates* column_candidates [[buffer(4)]],
                     device const float* row_times [[buffer(5)]],
                     device const float* column_times [[buffer(6)]],
                     constant Shapes& shapes [[buffer(7)]],
                     device Values* dx [[buffer(8)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= shapes.count) {
        return;
    }
    Place at = place_of(id, shapes);
    Candidates rows = row_candidates[at.row];
    Candidates columns = column_candidates[at.column];
    BlockedSum sum = empty_sum();
    if (rows.pixel >= 0 && columns.pixel >= 0) {
        Values value = Values(x[index_of(at.image, shapes.height, shapes.width, rows.pixel, columns.pixel,
                                         shapes.channels, at.channel)]);
        for (int i = 0; i < rows.count; ++i) {
            float vertical = row_times[rows.start + i];
            Index window = index_of(at.image, shapes.source_height, shapes.source_width, rows.first + i,
                                    columns.first, shapes.channels, at.channel);
            for (int k = 0; k < columns.count; ++k) {
                float times = vertical * column_times[columns.start + k];
                if (times > 0) {
                    sum.add(Values(g[window]) * times * (value * inverse[window]));
                }
                window += shapes.channels;
            }
        }
    }
    dx[id] = sum.value();
}
