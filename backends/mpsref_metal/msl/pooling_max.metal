// Max pooling, forward and gradient. The selected tap is the first in raster order whose value is the maximum.
//
// The gradient takes two steps: the selected tap of each window, then for each pixel the sum over the windows that
// select it. A tap is stored as the numbers of its groups on both axes, row * GROUPS + column.

#ifndef Tap  // `forward` does not need it
constant constexpr uint GROUPS = 16;  // at least the groups of a window in a row
#define Tap Counts                    // what is stored: uchar, ushort or uint, or a vector of them
#endif

struct Selected {
    Values value;
    Counts tap;
};

Selected select_tap(device const Storage* x, Place at, Window vertical, Window horizontal, constant Axis* axes,
                    uint height, uint width, uint channels) {
    Selected best = {Values(0.0f), Counts(0u)};
    for (int i = 0; i < groups(vertical); ++i) {
        int row = pixel_of(vertical, axes[0], i);
        for (int k = 0; k < groups(horizontal); ++k) {
            int column = pixel_of(horizontal, axes[1], k);
            bool inside = row >= 0 && column >= 0;
            Values value = Values(0.0f);
            if (inside) {
                value = Values(x[index_of(at.image, height, width, row, column, channels, at.channel)]);
            }
            Flags better = i + k == 0 ? Flags(true) : value > best.value;
            best.value = select(best.value, value, better);
            best.tap = select(best.tap, Counts(uint(i) * GROUPS + uint(k)), better);
        }
    }
    return best;
}

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
    y[id] = select_tap(x, at, row_windows[at.row], column_windows[at.column], axes, problem.source_height,
                       problem.source_width, problem.channels)
                .value;
}

// The selected tap of each window.
kernel void selected_taps(device const Storage* x [[buffer(0)]],
                          device const Window* row_windows [[buffer(1)]],
                          device const Window* column_windows [[buffer(2)]],
                          constant Axis* axes [[buffer(3)]],
                          constant Problem& problem [[buffer(4)]],
                          device Tap* taps [[buffer(5)]],
                          uint id [[thread_position_in_grid]]) {
    if (id >= problem.count) {
        return;
    }
    Place at = place_of(id, problem);
    Counts tap = select_tap(x, at, row_windows[at.row], column_windows[at.column], axes, problem.source_height,
                            problem.source_width, problem.channels)
                     .tap;
    taps[id] = Tap(tap);
}

// The first group of a window that reads a pixel, or -1: of several, which have the same value, only this is selected.
int first_group(Window window, Axis axis, int pixel) {
    int leading = window.before > 0 ? 1 : 0;
    if (leading == 1 && pixel == axis.low) {
        return 0;
    }
    int tap = tap_at(window, axis, pixel);
    if (tap >= 0) {
        return leading + tap;
    }
    return window.after > 0 && pixel == axis.high ? leading + window.count : -1;
}

// dx = sum of g over the windows that select this pixel
kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Tap* taps [[buffer(1)]],
                     device const Window* row_windows [[buffer(2)]],
                     device const Window* column_windows [[buffer(3)]],
                     device const Candidates* row_candidates [[buffer(4)]],
                     device const Candidates* column_candidates [[buffer(5)]],
                     constant Axis* axes [[buffer(6)]],
                     constant Problem& problem [[buffer(7)]],
                     device Values* dx [[buffer(8)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= problem.count) {
        return;
    }
    Place at = place_of(id, problem);
    Candidates rows = row_candidates[at.row];
    Candidates columns = column_candidates[at.column];
    BlockedSum sum = empty_sum();
    for (int i = rows.first; i < rows.first + rows.count; ++i) {
        int vertical = first_group(row_windows[i], axes[0], rows.pixel);
        for (int k = columns.first; k < columns.first + columns.count; ++k) {
            int horizontal = first_group(column_windows[k], axes[1], columns.pixel);
            if (vertical < 0 || horizontal < 0) {
                continue;
            }
            Index window = index_of(at.image, problem.source_height, problem.source_width, i, k, problem.channels,
                                    at.channel);
            Flags is_selected = Counts(taps[window]) == Counts(uint(vertical) * GROUPS + uint(horizontal));
            sum.add(select(Values(0.0f), Values(g[window]), is_selected));
        }
    }
    dx[id] = sum.value();
}
