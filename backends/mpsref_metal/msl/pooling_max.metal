// Max pooling, forward and gradient. The selected tap is the first in raster order whose value is the maximum.

struct Selected {
    float value;
    int row;  // -1: a zero outside the image
    int column;
};

Selected select_tap(device const Storage* x, uint image, uint channel, Window vertical, Window horizontal, Axis rows,
                    Axis columns, uint height, uint width, uint channels) {
    Selected best = {0, -1, -1};
    for (int i = 0; i < groups(vertical); ++i) {
        int row = pixel_of(vertical, rows, i);
        for (int k = 0; k < groups(horizontal); ++k) {
            int column = pixel_of(horizontal, columns, k);
            bool inside = row >= 0 && column >= 0;
            float value = inside ? float(x[index_of(image, height, width, row, column, channels, channel)]) : 0.0f;
            if (i + k == 0 || value > best.value) {
                best = {value, row, column};
            }
        }
    }
    return best;
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
    y[id] = select_tap(x, at.image, at.channel, row_windows[at.row], column_windows[at.column], axes[0], axes[1],
                       problem.source_height, problem.source_width, problem.channels)
                .value;
}

// dx = sum of g over the windows that select this pixel
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
    for (int i = rows.first; i < rows.first + rows.count; ++i) {
        for (int k = columns.first; k < columns.first + columns.count; ++k) {
            Selected selected = select_tap(x, at.image, at.channel, row_windows[i], column_windows[k], axes[0], axes[1],
                                           problem.height, problem.width, problem.channels);
            if (selected.row == rows.pixel && selected.column == columns.pixel) {
                sum.add(float(g[index_of(at.image, problem.source_height, problem.source_width, i, k, problem.channels,
                                         at.channel)]));
            }
        }
    }
    dx[id] = sum.value();
}
