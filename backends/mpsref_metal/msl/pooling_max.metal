// Max pooling, forward and gradient. The selected tap is the first in raster order whose value is the maximum.
//
// The gradient takes two steps: the selected tap of each window, then for each pixel the sum over the windows that
// select it. A tap is stored as the numbers of its groups on both axes, row * GROUPS + column.

#ifndef Tap  // `forward` does not need it
constant constexpr uint GROUPS = 16;  // at least the number of groups of a window along a row
#define Tap Counts                    // the stored type: uchar, ushort or uint, or a vector of them
#endif

struct Selected {
    Values value;
    Counts tap;
};

void consider(thread Selected& best, Values value, uint tap) {
    Flags better = value > best.value;
    best.value = select(best.value, value, better);
    best.tap = select(best.tap, Counts(tap), better);
}

Selected select_tap(device const Storage* x, Place at, Window vertical, Window horizontal, constant Axis* axes,
                    uint height, uint width, uint channels) {
    Selected best = {Values(0.0f), Counts(0u)};
    int leading = horizontal.before > 0 ? 1 : 0;
    for (int i = 0; i < groups(vertical); ++i) {
        int row = pixel_of(vertical, axes[0], i);
        device const Storage* line = x + index_of(at.image, height, width, max(row, 0), 0, channels, at.channel);
        if (i == 0) {  // the first tap is selected until a larger value is found
            int column = pixel_of(horizontal, axes[1], 0);
            best.value = row < 0 || column < 0 ? Values(0.0f) : Values(line[Index(column) * channels]);
        }
        uint tap = uint(i) * GROUPS;
        if (row < 0) {
            consider(best, Values(0.0f), tap);
            continue;
        }
        if (leading) {
            consider(best, axes[1].low < 0 ? Values(0.0f) : Values(line[Index(axes[1].low) * channels]), tap);
        }
        Index from = Index(horizontal.first) * channels;
#pragma clang loop unroll_count(2)  // two loads at a time; four take longer on an H200
        for (int k = 0; k < horizontal.count; ++k) {
            consider(best, Values(line[from]), tap + uint(leading + k));
            from += Index(axes[1].step) * channels;
        }
        if (horizontal.after > 0) {
            Values value = axes[1].high < 0 ? Values(0.0f) : Values(line[Index(axes[1].high) * channels]);
            consider(best, value, tap + uint(leading + horizontal.count));
        }
    }
    return best;
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
    y[id] = select_tap(x, at, row_windows[at.row], column_windows[at.column], axes, shapes.source_height,
                       shapes.source_width, shapes.channels)
                .value;
}

// The selected tap of each window.
kernel void selected_taps(device const Storage* x [[buffer(0)]],
                          device const Window* row_windows [[buffer(1)]],
                          device const Window* column_windows [[buffer(2)]],
                          constant Axis* axes [[buffer(3)]],
                          constant Shapes& shapes [[buffer(4)]],
                          device Tap* taps [[buffer(5)]],
                          uint id [[thread_position_in_grid]]) {
    if (id >= shapes.count) {
        return;
    }
    Place at = place_of(id, shapes);
    Index to = first_pack(id, at);
    for (uint j = 0; j < TOGETHER; ++j) {
        Counts tap = select_tap(x, at, row_windows[at.row], column_windows[at.column], axes, shapes.source_height,
                                shapes.source_width, shapes.channels)
                         .tap;
        taps[to] = Tap(tap);
        to += shapes.extent.channels.value;
        at.channel += shapes.extent.channels.value;
    }
}

// dx = sum of g over the windows that select this pixel. `row_groups` and `column_groups` hold, for each window of the
// candidates, the first group that reads the pixel, or -1: later groups have the same value and are never selected.
kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Tap* taps [[buffer(1)]],
                     device const Candidates* row_candidates [[buffer(2)]],
                     device const Candidates* column_candidates [[buffer(3)]],
                     device const int* row_groups [[buffer(4)]],
                     device const int* column_groups [[buffer(5)]],
                     constant Shapes& shapes [[buffer(6)]],
                     device Values* dx [[buffer(7)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= shapes.count) {
        return;
    }
    Place at = place_of(id, shapes);
    Candidates rows = row_candidates[at.row];
    Candidates columns = column_candidates[at.column];
    uint apart = shapes.extent.channels.value;
    BlockedSum sums[TOGETHER];
    for (uint j = 0; j < TOGETHER; ++j) {
        sums[j] = empty_sum();
    }
    for (int i = 0; i < rows.count; ++i) {
        int vertical = row_groups[rows.start + i];
        Index window = index_of(at.image, shapes.source_height, shapes.source_width, rows.first + i, columns.first,
                                shapes.channels, at.channel);
        for (int k = 0; k < columns.count; ++k) {
            int horizontal = column_groups[columns.start + k];
            if (vertical >= 0 && horizontal >= 0) {
                Counts tap = Counts(uint(vertical) * GROUPS + uint(horizontal));
                for (uint j = 0; j < TOGETHER; ++j) {
                    Flags is_selected = Counts(taps[window + j * apart]) == tap;
                    sums[j].add(select(Values(0.0f), Values(g[window + j * apart]), is_selected));
                }
            }
            window += shapes.channels;
        }
    }
    for (uint j = 0; j < TOGETHER; ++j) {
        dx[first_pack(id, at) + j * apart] = sums[j].value();
    }
}
