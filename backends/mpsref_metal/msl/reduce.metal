// Reductions along the axes of a part of an image; and the gradient of the spatial mean.

#ifndef SPECIALIZED
constant int OPERATION = 0;  // 0 sum, 1 minimum, 2 maximum, 3 index of the minimum, 4 index of the maximum
#endif

struct Reduction {
    uint count;
    uint height;  // of the result
    uint width;
    uint channels;
    uint rows;  // how many elements are folded on each axis
    uint columns;
    uint depth;
    uint source_height;
    uint source_width;
    uint source_channels;
    uint top;  // where the part begins
    uint left;
    float scale;
};

// One thread for WIDTH channels of the result. Where channels are folded, WIDTH is 1.
kernel void reduce(device const Storage* source [[buffer(0)]],
                   constant Reduction& reduction [[buffer(1)]],
                   device Values* result [[buffer(2)]],
                   uint id [[thread_position_in_grid]]) {
    if (id >= reduction.count) {
        return;
    }
    Place at = place_in(id, reduction.height, reduction.width, reduction.channels);
    uint row = reduction.top + at.row;
    uint column = reduction.left + at.column;
    BlockedSum sum = empty_sum();
    Values best = Values(0.0f);
    Values found = Values(0.0f);
    uint seen = 0;
    for (uint i = row; i < row + reduction.rows; ++i) {
        for (uint k = column; k < column + reduction.columns; ++k) {
            for (uint c = at.channel; c < at.channel + reduction.depth; ++c) {
                Values value = Values(source[index_of(at.image, reduction.source_height, reduction.source_width,
                                                      int(i), int(k), reduction.source_channels, c)]);
                if (OPERATION == 0) {
                    sum.add(value);
                } else {
                    bool smaller = OPERATION == 1 || OPERATION == 3;
                    Flags better = smaller ? value < best : value > best;
                    if (seen == 0) {
                        better = Flags(true);
                    }
                    best = select(best, value, better);
                    found = select(found, Values(float(seen)), better);
                    seen += 1;
                }
            }
        }
    }
    result[id] = OPERATION == 0 ? sum.value() * reduction.scale : OPERATION < 3 ? best : found;
}

struct SpatialMean {
    uint count;
    uint height;  // of the image
    uint width;
    uint channels;
    uint top;  // the part whose mean was taken
    uint left;
    uint rows;
    uint columns;
    float scale;
};

kernel void spread(device const Storage* g [[buffer(0)]],
                   constant SpatialMean& mean [[buffer(1)]],
                   device Values* dx [[buffer(2)]],
                   uint id [[thread_position_in_grid]]) {
    if (id >= mean.count) {
        return;
    }
    Place at = place_in(id, mean.height, mean.width, mean.channels);
    bool inside = at.row >= mean.top && at.row < mean.top + mean.rows && at.column >= mean.left &&
                  at.column < mean.left + mean.columns;
    Values value = Values(g[at.image * mean.channels + at.channel]) * mean.scale;
    dx[id] = inside ? value : Values(0.0f);
}
