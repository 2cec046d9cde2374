// L2-norm pooling, forward and gradient: the root of the sum of squares of each window. The gradient reads the norms of
// all windows, which `forward` gives.

kernel void forward(device const Storage* x [[buffer(0)]],
                    device const Window* row_windows [[buffer(1)]],
                    device const Window* column_windows [[buffer(2)]],
                    constant Axis* axes [[buffer(3)]],
                    constant Problem& problem [[buffer(4)]],
                    device Values* y [[buffer(5)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= problem.count) {
        return;
    }
    Place at = place_of(id, problem);
    Window vertical = row_windows[at.row];
    Window horizontal = column_windows[at.column];
    BlockedSum squares = empty_sum();
    for (int i = 0; i < groups(vertical); ++i) {
        int row = pixel_of(vertical, axes[0], i);
        for (int k = 0; k < groups(horizontal); ++k) {
            int column = pixel_of(horizontal, axes[1], k);
            if (row >= 0 && column >= 0) {
                Values value = Values(x[index_of(at.image, problem.source_height, problem.source_width, row, column,
                                                 problem.channels, at.channel)]);
                squares.add(value * value * (times_of(vertical, i) * times_of(horizontal, k)));
            }
        }
    }
    y[id] = sqrt(squares.value());
}

// How many taps of a window read a pixel.
float times_reading(Window window, Axis axis, int pixel) {
    float before = pixel == axis.low ? window.before : 0.0f;
    float after = pixel == axis.high ? window.after : 0.0f;
    return before + (tap_at(window, axis, pixel) >= 0 ? 1.0f : 0.0f) + after;
}

// dx = x * sum over the windows that read this pixel of g * times / norm; a norm of 0 contributes 0
kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Storage* x [[buffer(1)]],
                     device const Values* norms [[buffer(2)]],
                     device const Window* row_windows [[buffer(3)]],
                     device const Window* column_windows [[buffer(4)]],
                     device const Candidates* row_candidates [[buffer(5)]],
                     device const Candidates* column_candidates [[buffer(6)]],
                     constant Axis* axes [[buffer(7)]],
                     constant Problem& problem [[buffer(8)]],
                     device Values* dx [[buffer(9)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= problem.count) {
        return;
    }
    Place at = place_of(id, problem);
    Candidates rows = row_candidates[at.row];
    Candidates columns = column_candidates[at.column];
    BlockedSum sum = empty_sum();
    if (rows.pixel >= 0 && columns.pixel >= 0) {
        Values value = Values(x[index_of(at.image, problem.height, problem.width, rows.pixel, columns.pixel,
                                         problem.channels, at.channel)]);
        for (int i = rows.first; i < rows.first + rows.count; ++i) {
            float vertical = times_reading(row_windows[i], axes[0], rows.pixel);
            for (int k = columns.first; k < columns.first + columns.count; ++k) {
                float times = vertical * times_reading(column_windows[k], axes[1], columns.pixel);
                Index window = index_of(at.image, problem.source_height, problem.source_width, i, k, problem.channels,
                                        at.channel);
                if (times > 0) {
                    Values norm = norms[window];
                    Values term = Values(g[window]) * times * (value / norm);
                    sum.add(select(Values(0.0f), term, norm > Values(0.0f)));
                }
            }
        }
    }
    dx[id] = sum.value();
}
