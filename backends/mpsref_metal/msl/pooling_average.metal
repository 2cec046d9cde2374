// Average pooling, forward and gradient. Images are (N, H, W, C), channels fastest; one thread owns one result.
//
// Where windows lie, what lies outside the image and what a window is divided by was decided before: `rows` and
// `columns` hold, for each row and column of the result, the run of source indices to add up, and the two vectors
// of factors are 1/N of each axis (0 for a window without a tap inside the image).

#include <metal_stdlib>
using namespace metal;

#ifndef SPECIALIZED
typedef float Storage;  // what the source image holds: float or half
#endif

struct Run {
    int first;
    int count;
};

struct Problem {
    uint count;  // results; the grid is rounded up to whole threadgroups, and the surplus threads do run
    uint channels;
    uint height;  // of the result
    uint width;
    uint source_height;
    uint source_width;
};

struct Result {
    ulong image;  // index of the first pixel of the source image, in pixels
    uint row;
    uint column;
    uint channel;
};

Result result_of(uint id, constant Problem& problem) {
    Result r;
    r.channel = id % problem.channels;
    uint pixel = id / problem.channels;
    r.column = pixel % problem.width;
    uint line = pixel / problem.width;
    r.row = line % problem.height;
    r.image = ulong(line / problem.height) * problem.source_height * problem.source_width;
    return r;
}

// A sum whose chains of additions stay short, so that its rounding error does too.
struct BlockedSum {
    float total;
    float block;
    uint taken;

    void add(float term) {
        block += term;
        taken += 1;
        if (taken == 1024) {
            total += block;
            block = 0;
            taken = 0;
        }
    }
};

// y = (sum of the source pixels of the window inside the image) / N
kernel void forward(device const Storage* x [[buffer(0)]],
                    device const Run* rows [[buffer(1)]],
                    device const Run* columns [[buffer(2)]],
                    device const float* row_factors [[buffer(3)]],
                    device const float* column_factors [[buffer(4)]],
                    constant Problem& problem [[buffer(5)]],
                    device float* y [[buffer(6)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= problem.count) {
        return;
    }
    Result r = result_of(id, problem);
    Run vertical = rows[r.row];
    Run horizontal = columns[r.column];
    BlockedSum sum = {0, 0, 0};
    for (int i = vertical.first; i < vertical.first + vertical.count; ++i) {
        for (int k = horizontal.first; k < horizontal.first + horizontal.count; ++k) {
            ulong pixel = r.image + ulong(i) * problem.source_width + ulong(k);
            sum.add(float(x[pixel * problem.channels + r.channel]));
        }
    }
    y[id] = (sum.total + sum.block) * (row_factors[r.row] * column_factors[r.column]);
}

// dx = sum over the windows with a tap at this pixel of g / N
kernel void gradient(device const Storage* g [[buffer(0)]],
                     device const Run* rows [[buffer(1)]],
                     device const Run* columns [[buffer(2)]],
                     device const float* row_factors [[buffer(3)]],
                     device const float* column_factors [[buffer(4)]],
                     constant Problem& problem [[buffer(5)]],
                     device float* dx [[buffer(6)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= problem.count) {
        return;
    }
    Result r = result_of(id, problem);
    Run vertical = rows[r.row];
    Run horizontal = columns[r.column];
    BlockedSum sum = {0, 0, 0};
    for (int i = vertical.first; i < vertical.first + vertical.count; ++i) {
        for (int k = horizontal.first; k < horizontal.first + horizontal.count; ++k) {
            ulong pixel = r.image + ulong(i) * problem.source_width + ulong(k);
            float factor = row_factors[i] * column_factors[k];
            sum.add(float(g[pixel * problem.channels + r.channel]) * factor);
        }
    }
    dx[id] = sum.total + sum.block;
}
