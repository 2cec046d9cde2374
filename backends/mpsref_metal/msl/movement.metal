// Kernels that move pixels. Tables hold the source index that each row, column and channel of the result reads; if
// WIDTH is 4, the table of the channels counts packs.

struct Layout {
    uint count;
    uint source_height;
    uint source_width;
    uint source_channels;
    Extent extent;  // of the result; its channels count groups of TOGETHER packs
};

// The element that the tables name, or the fill value of the channel where one of them is -1.
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
    Place at = place_in(id, layout.extent);
    int row = rows[at.row];
    int column = columns[at.column];
    Index from = index_of(at.image, layout.source_height, layout.source_width, max(row, 0), max(column, 0),
                          layout.source_channels, 0);
    Values values[TOGETHER];
    for (uint j = 0; j < TOGETHER; ++j) {
        uint pack = at.channel + j * layout.extent.channels.value;
        int channel = channels[pack];
        bool is_filled = row < 0 || column < 0 || channel < 0;
        values[j] = is_filled ? fills[pack] : Values(source[from + uint(max(channel, 0))]);
    }
    for (uint j = 0; j < TOGETHER; ++j) {
        result[first_pack(id, at) + j * layout.extent.channels.value] = values[j];
    }
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
    Place at = place_in(id, layout.extent);
    uint apart = layout.extent.channels.value;
    BlockedSum sums[TOGETHER];
    for (uint j = 0; j < TOGETHER; ++j) {
        sums[j] = empty_sum();
    }
    for (int a = row_start[at.row]; a < row_start[at.row + 1]; ++a) {
        for (int b = column_start[at.column]; b < column_start[at.column + 1]; ++b) {
            Index from = index_of(at.image, layout.source_height, layout.source_width, row_order[a], column_order[b],
                                  layout.source_channels, 0);
            for (uint j = 0; j < TOGETHER; ++j) {
                uint pack = at.channel + j * apart;
                for (int c = channel_start[pack]; c < channel_start[pack + 1]; ++c) {
                    sums[j].add(Values(source[from + uint(channel_order[c])]));
                }
            }
        }
    }
    for (uint j = 0; j < TOGETHER; ++j) {
        result[first_pack(id, at) + j * apart] = sums[j].value();
    }
}
