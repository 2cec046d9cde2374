// L2-norm pooling, forward and gradient: the root of the sum of squares of each window.

float norm_of(device const Storage* x, uint image, uint channel, Window vertical, Window horizontal, Axis rows,
              Axis columns, uint height, uint width, uint channels) {
    BlockedSum squares = {0, 0, 0};
    for (int i = 0; i < groups(vertical); ++i) {
        int row = pixel_of(vertical, rows, i);
        for (int k = 0; k < groups(horizontal); ++k) {
            int column = pixel_of(horizontal, columns, k);
            if (row >= 0 && column >= 0) {
                float value = float(x[index_of(image, height, width, row, column, channels, channel)]);
                squares.add(value * value * (times_of(vertical, i) * times_of(horizontal, k)));
            }
        }
    }
    return sqrt(squares.value());
}

// How many taps of a window read a pixel.
float times_reading(Window window, Axis axis, int pixel) {
    float times = 0;
    for (int group = 0; group < groups(window); ++group) {
        if (pixel_of(window, axis, group) == pixel) {
            times += times_of(window, group);
        }
    }
    return times;
}

kernel void forward(device const Storage* x [[buffer(0)]],
                    device const Window* row_windows [[buffer(1)]],
                    device const Window* column_windows [[buffer(2)]],
                    constant Axis* axes [[buffer(3)]],
                    constant Problem& problem [[buffer(4)]],
                    device float* y [[buffer(5)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= problem.count) {
        return;
    }
    Place at = place_of(id, problem);
    y[id] = norm_of(x, at.image, at.channel, row_windows[at.row], column_windows[at.column], axes[0], axes[1],
                    problem.source_height, problem.source_width, problem.channels);
}

// dx = x * sum over the windows that read this pixel of g * times / norm; a norm of 0 contributes 0
kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Storage* x [[buffer(1)]],
                     device const Window* row_windows [[buffer(2)]],
                     device const Window* column_windows [[buffer(3)]],
                     device const Candidates* row_candidates [[buffer(4)]],
                     device const Candidates* column_candidates [[buffer(5)]],
                     constant Axis* axes [[buffer(6)]],
                     constant Problem& problem [[buffer(7)]],
                     device float* dx [[buffer(8)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= problem.count) {
        return;
    }
    Place at = place_of(id, problem);
    Candidates rows = row_candidates[at.row];
    Candidates columns = column_candidates[at.column];
    BlockedSum sum = {0, 0, 0};
    if (rows.pixel >= 0 && columns.pixel >= 0) {
        float value = float(x[index_of(at.image, problem.height, problem.width, rows.pixel, columns.pixel,
                                       problem.channels, at.channel)]);
        for (int i = rows.first; i < rows.first + rows.count; ++i) {
            for (int k = columns.first; k < columns.first + columns.count; ++k) {
                float times = times_reading(row_windows[i], axes[0], rows.pixel) *
                              times_reading(column_windows[k], axes[1], columns.pixel);
                float norm = norm_of(x, at.image, at.channel, row_windows[i], column_windows[k], axes[0], axes[1],
                                     problem.height, problem.width, problem.channels);
                if (times > 0 && norm > 0) {
                    float upstream = float(g[index_of(at.image, problem.source_height, problem.source_width, i, k,
                                                      problem.channels, at.channel)]);
                    sum.add(upstream * times * (value / norm));
                }
            }
        }
    }
    dx[id] = sum.value();
}
