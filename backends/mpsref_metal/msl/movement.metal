// Kernels that move pixels. Tables say which source index each row, column and channel of the result reads; where WIDTH
// is 4, that of the channels counts packs.

struct Layout {
    uint count;
    uint height;  // of the result
    uint width;
    uint channels;
    uint source_height;
    uint source_width;
    uint source_channels;
};

// The element that the tables name, or the channel's fill where one of them has -1.
kernel void gather(device const Storage* source [[buffer(0)]],
                   device const int* rows [[buffer(1)]],
                   device const int* columns [[buffer(2)]],
                   device const int* channels [[buffer(3)]],
                   device const Values* fills [[buffer(4)]],
                   constant Layout& layout [[buffer(5)]],
                   device Values* result [[buffer(6)]],
                   uint id [[thread_position_in_grid]]) {
    if (id >= layout.count) {
        return;
    }
    Place at = place_in(id, layout.height, layout.width, layout.channels);
    int row = rows[at.row];
    int column = columns[at.column];
    int channel = channels[at.channel];
    if (row < 0 || column < 0 || channel < 0) {
        result[id] = fills[at.channel];
        return;
    }
    result[id] = Values(source[index_of(at.image, layout.source_height, layout.source_width, row, column,
                                       layout.source_channels, uint(channel))]);
}

// The sum over the source elements `order[start[j]] ... order[start[j + 1] - 1]` of each axis.
kernel void gather_sums(device const Storage* source [[buffer(0)]],
                        device const int* row_start [[buffer(1)]],
                        device const int* row_order [[buffer(2)]],
                        device const int* column_start [[buffer(3)]],
                        device const int* column_order [[buffer(4)]],
                        device const int* channel_start [[buffer(5)]],
                        device const int* channel_order [[buffer(6)]],
                        constant Layout& layout [[buffer(7)]],
                        device Values* result [[buffer(8)]],
                        uint id [[thread_position_in_grid]]) {
    if (id >= layout.count) {
        return;
    }
    Place at = place_in(id, layout.height, layout.width, layout.channels);
    BlockedSum sum = empty_sum();
    for (int a = row_start[at.row]; a < row_start[at.row + 1]; ++a) {
        for (int b = column_start[at.column]; b < column_start[at.column + 1]; ++b) {
            for (int c = channel_start[at.channel]; c < channel_start[at.channel + 1]; ++c) {
                sum.add(Values(source[index_of(at.image, layout.source_height, layout.source_width, row_order[a],
                                              column_order[b], layout.source_channels, uint(channel_order[c]))]));
            }
        }
    }
    result[id] = sum.value();
}
