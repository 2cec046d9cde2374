// Local contrast normalization. The gradient takes two steps: what each output hands on, to its own pixel and to all
// pixels of its window, then for each source pixel the sum over the outputs that read it.

struct Parameters {
    float alpha;
    float beta;
    float delta;
    float p0;
    float pm;
    float ps;
    float taps;  // N, those outside the image included
};

struct Contrast {
    Values mean;
    Values base;  // T = delta + alpha * variance
};

Contrast contrast_of(device const Storage* x, Around at, constant Sizes& sizes, constant Parameters& parameters) {
    BlockedSum sum = empty_sum();
    for (int i = at.rows.first; i < at.rows.first + at.rows.count; ++i) {
        for (int k = at.columns.first; k < at.columns.first + at.columns.count; ++k) {
            sum.add(Values(x[source_index(at, i, k, sizes)]));
        }
    }
    Values mean = sum.value() / parameters.taps;
    BlockedSum squares = empty_sum();
    for (int i = at.rows.first; i < at.rows.first + at.rows.count; ++i) {
        for (int k = at.columns.first; k < at.columns.first + at.columns.count; ++k) {
            Values distance = Values(x[source_index(at, i, k, sizes)]) - mean;
            squares.add(distance * distance);
        }
    }
    float outside = parameters.taps - float(at.rows.count) * float(at.columns.count);
    Values variance = (squares.value() + outside * (mean * mean)) / parameters.taps;
    return {mean, parameters.delta + parameters.alpha * variance};
}

// y = pm + ps * (x - p0 * mean) / T**beta
kernel void forward(device const Storage* x [[buffer(0)]],
                    device const Run* rows [[buffer(1)]],
                    device const Run* columns [[buffer(2)]],
                    constant Sizes& sizes [[buffer(3)]],
                    constant Parameters& parameters [[buffer(4)]],
                    device Values* y [[buffer(5)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= sizes.count) {
        return;
    }
    Around at = around(id, sizes, rows, columns);
    Contrast contrast = contrast_of(x, at, sizes, parameters);
    Values difference = centre_of(x, at, sizes) - parameters.p0 * contrast.mean;
    y[id] = parameters.pm + parameters.ps * difference * inverse_power(contrast.base, parameters.beta);
}

// own = ps * g / T**beta, share = 2 * alpha * beta / N * own * (x - p0 * mean) / T
kernel void shares(device const Gradient* g [[buffer(0)]],
                   device const Storage* x [[buffer(1)]],
                   device const Run* rows [[buffer(2)]],
                   device const Run* columns [[buffer(3)]],
                   constant Sizes& sizes [[buffer(4)]],
                   constant Parameters& parameters [[buffer(5)]],
                   device Values* own [[buffer(6)]],
                   device Values* share [[buffer(7)]],
                   device Values* mean [[buffer(8)]],
                   uint id [[thread_position_in_grid]]) {
    if (id >= sizes.count) {
        return;
    }
    Around at = around(id, sizes, rows, columns);
    Contrast contrast = contrast_of(x, at, sizes, parameters);
    Values value = parameters.ps * Values(g[id]) * inverse_power(contrast.base, parameters.beta);
    Values difference = centre_of(x, at, sizes) - parameters.p0 * contrast.mean;
    own[id] = value;
    share[id] = 2 * parameters.alpha * parameters.beta / parameters.taps * value * (difference / contrast.base);
    mean[id] = contrast.mean;
}

// dx = own - sum of p0 / N * own + share * (x - mean)
kernel void gradient(device const Storage* x [[buffer(0)]],
                     device const Values* own [[buffer(1)]],
                     device const Values* share [[buffer(2)]],
                     device const Values* mean [[buffer(3)]],
                     device const Run* rows [[buffer(4)]],
                     device const Run* columns [[buffer(5)]],
                     constant Sizes& sizes [[buffer(6)]],
                     constant Parameters& parameters [[buffer(7)]],
                     device Values* dx [[buffer(8)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= sizes.count) {
        return;
    }
    Around at = around(id, sizes, rows, columns);
    Values value = Values(x[id]);
    BlockedSum sum = empty_sum();
    for (int i = at.rows.first; i < at.rows.first + at.rows.count; ++i) {
        for (int k = at.columns.first; k < at.columns.first + at.columns.count; ++k) {
            Index output = output_index(at, i, k, sizes);
            sum.add(parameters.p0 / parameters.taps * own[output] + share[output] * (value - mean[output]));
        }
    }
    Values mine = Values(0.0f);
    if (has_centre(at)) {
        mine = own[output_index(at, at.rows.centre, at.columns.centre, sizes)];
    }
    dx[id] = mine - sum.value();
}
