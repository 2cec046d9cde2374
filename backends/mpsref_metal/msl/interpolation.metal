// Sums over runs of weighted rows and columns: interpolation, and its gradient.

struct Weighted {
    int first;  // source index
    int count;
    int start;  // index of its first weight
};

kernel void resample(device const Storage* source [[buffer(0)]],
                     device const Weighted* rows [[buffer(1)]],
                     device const float* row_weights [[buffer(2)]],
                     device const Weighted* columns [[buffer(3)]],
                     device const float* column_weights [[buffer(4)]],
                     constant Shapes& shapes [[buffer(5)]],
                     device Values* result [[buffer(6)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= shapes.count) {
        return;
    }
    Place at = place_of(id, shapes);
    Weighted vertical = rows[at.row];
    Weighted horizontal = columns[at.column];
    uint apart = shapes.extent.channels.value;
    BlockedSum sums[TOGETHER];
    for (uint j = 0; j < TOGETHER; ++j) {
        sums[j] = empty_sum();
    }
    for (int a = 0; a < vertical.count; ++a) {
        for (int b = 0; b < horizontal.count; ++b) {
            float weight = row_weights[vertical.start + a] * column_weights[horizontal.start + b];
            Index from = index_of(at.image, shapes.source_height, shapes.source_width, vertical.first + a,
                                  horizontal.first + b, shapes.channels, at.channel);
            for (uint j = 0; j < TOGETHER; ++j) {
                sums[j].add(weight * Values(source[from + j * apart]));
            }
        }
    }
    for (uint j = 0; j < TOGETHER; ++j) {
        result[first_pack(id, at) + j * apart] = sums[j].value();
    }
}
