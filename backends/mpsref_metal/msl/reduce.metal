// Reductions of a region of an image along its axes, and the gradient of the spatial mean.

#ifndef SPECIALIZED
constant int OPERATION = 0;  // 0 sum, 1 minimum, 2 maximum, 3 index of the minimum, 4 index of the maximum
#endif

struct Reduction {
    uint count;
    Extent extent;  // of the result
    uint rows;  // number of elements that are folded along each axis
    uint columns;
    uint depth;
    uint source_height;
    uint source_width;
    uint source_channels;
    uint top;  // where the region begins
    uint left;
    float scale;
};

// LANES threads compute a pack of the result. Where channels are folded, WIDTH is 1, and the threads take the channels
// in turn. LANES is 1 otherwise, and for an index.
kernel void reduce(device const Storage* source [[buffer(0)]],
                   constant Reduction& reduction [[buffer(1)]],
                   device Values* result [[buffer(2)]],
                   uint id [[thread_position_in_grid]]) {
    if (id >= reduction.count) {
        return;
    }
    Place at = place_in(id / LANES, reduction.extent);
    uint row = reduction.top + at.row;
    uint column = reduction.left + at.column;
    BlockedSum sum = empty_sum();
    Values best = Values(0.0f);
    Values found = Values(0.0f);
    uint seen = 0;
    for (uint i = row; i < row + reduction.rows; ++i) {
        for (uint k = column; k < column + reduction.columns; ++k) {
            for (uint c = at.channel + id % LANES; c < at.channel + reduction.depth; c += LANES) {
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
    Values folded = OPERATION == 0 ? sum.value() : OPERATION < 3 ? best : found;
    if (LANES > 1) {
        float mine = sum_of(folded);  // WIDTH is 1
        folded = Values(OPERATION == 0   ? sum_of_lanes(mine)
                        : OPERATION == 1 ? -largest_of_lanes(-mine)
                                         : largest_of_lanes(mine));
    }
    if (id % LANES == 0) {
        result[id / LANES] = OPERATION == 0 ? folded * reduction.scale : folded;
    }
}

struct SpatialMean {
    uint count;
    Extent extent;  // of the image
    uint top;  // the region whose mean was taken
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
    Place at = place_in(id, mean.extent);
    bool inside = at.row >= mean.top && at.row < mean.top + mean.rows && at.column >= mean.left &&
                  at.column < mean.left + mean.columns;
    Values value = Values(g[at.image * mean.extent.channels.value + at.channel]) * mean.scale;
    dx[id] = inside ? value : Values(0.0f);
}
