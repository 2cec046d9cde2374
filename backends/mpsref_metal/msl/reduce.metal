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

kernel void reduce(device const Storage* source [[buffer(0)]],
                   constant Reduction& reduction [[buffer(1)]],
                   device float* result [[buffer(2)]],
                   uint id [[thread_position_in_grid]]) {
    if (id >= reduction.count) {
        return;
    }
    uint pixel = id / reduction.channels;
    uint line = pixel / reduction.width;
    uint image = line / reduction.height;
    uint row = reduction.top + line % reduction.height;
    uint column = reduction.left + pixel % reduction.width;
    uint channel = id % reduction.channels;
    BlockedSum sum = {0, 0, 0};
    float best = 0;
    uint found = 0;
    uint seen = 0;
    for (uint i = row; i < row + reduction.rows; ++i) {
        for (uint k = column; k < column + reduction.columns; ++k) {
            for (uint c = channel; c < channel + reduction.depth; ++c) {
                float value = float(source[index_of(image, reduction.source_height, reduction.source_width, int(i),
                                                    int(k), reduction.source_channels, c)]);
                if (OPERATION == 0) {
                    sum.add(value);
                } else {
                    bool smaller = OPERATION == 1 || OPERATION == 3;
                    if (seen == 0 || (smaller ? value < best : value > best)) {
                        best = value;
                        found = seen;
                    }
                    seen += 1;
                }
            }
        }
    }
    result[id] = OPERATION == 0 ? sum.value() * reduction.scale : OPERATION < 3 ? best : float(found);
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
                   device float* dx [[buffer(2)]],
                   uint id [[thread_position_in_grid]]) {
    if (id >= mean.count) {
        return;
    }
    uint pixel = id / mean.channels;
    uint line = pixel / mean.width;
    uint row = line % mean.height;
    uint column = pixel % mean.width;
    bool inside = row >= mean.top && row < mean.top + mean.rows && column >= mean.left &&
                  column < mean.left + mean.columns;
    uint source = line / mean.height * mean.channels + id % mean.channels;
    dx[id] = inside ? float(g[source]) * mean.scale : 0.0f;
}
