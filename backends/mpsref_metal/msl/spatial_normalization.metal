// Spatial normalization. The gradient takes two steps: what each output contributes to its own pixel and to all pixels
// of its window, then for each source pixel the sum over the outputs that read it.

struct Parameters {
    float beta;
    float delta;
    float scale;  // alpha / N
    float slope;  // 2 * alpha * beta / N
};

// T = delta + alpha / N * sum of squares
Values base_of(device const Storage* x, Around at, constant WindowSizes& sizes, constant Parameters& parameters) {
    BlockedSum squares = empty_sum();
    for (int i = at.rows.first; i < at.rows.first + at.rows.count; ++i) {
        for (int k = at.columns.first; k < at.columns.first + at.columns.count; ++k) {
            Values value = Values(x[source_index(at, i, k, sizes)]);
            squares.add(value * value);
        }
    }
    return parameters.delta + parameters.scale * squares.value();
}

// y = x / T**beta
kernel void forward(device const Storage* x [[buffer(0)]],
                    device const Run* rows [[buffer(1)]],
                    device const Run* columns [[buffer(2)]],
                    constant WindowSizes& sizes [[buffer(3)]],
                    constant Parameters& parameters [[buffer(4)]],
                    device Values* y [[buffer(5)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= sizes.count) {
        return;
    }
    Around at = around(id, sizes, rows, columns);
    y[id] = centre_of(x, at, sizes) * inverse_power(base_of(x, at, sizes, parameters), parameters.beta);
}

// own = g / T**beta, share = own * x / T
kernel void shares(device const Gradient* g [[buffer(0)]],
                   device const Storage* x [[buffer(1)]],
                   device const Run* rows [[buffer(2)]],
                   device const Run* columns [[buffer(3)]],
                   constant WindowSizes& sizes [[buffer(4)]],
                   constant Parameters& parameters [[buffer(5)]],
                   device Values* own [[buffer(6)]],
                   device Values* share [[buffer(7)]],
                   uint id [[thread_position_in_grid]]) {
    if (id >= sizes.count) {
        return;
    }
    Around at = around(id, sizes, rows, columns);
    Values base = base_of(x, at, sizes, parameters);
    Values value = Values(g[id]) * inverse_power(base, parameters.beta);
    own[id] = value;
    share[id] = value * (centre_of(x, at, sizes) / base);
}

// dx = own - 2 * alpha * beta / N * x * sum of shares
kernel void gradient(device const Storage* x [[buffer(0)]],
                     device const Values* own [[buffer(1)]],
                     device const Values* share [[buffer(2)]],
                     device const Run* rows [[buffer(3)]],
                     device const Run* columns [[buffer(4)]],
                     constant WindowSizes& sizes [[buffer(5)]],
                     constant Parameters& parameters [[buffer(6)]],
                     device Values* dx [[buffer(7)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= sizes.count) {
        return;
    }
    Around at = around(id, sizes, rows, columns);
    BlockedSum sum = empty_sum();
    for (int i = at.rows.first; i < at.rows.first + at.rows.count; ++i) {
        for (int k = at.columns.first; k < at.columns.first + at.columns.count; ++k) {
            sum.add(share[output_index(at, i, k, sizes)]);
        }
    }
    Values mine = Values(0.0f);
    if (has_centre(at)) {
        mine = own[output_index(at, at.rows.centre, at.columns.centre, sizes)];
    }
    dx[id] = mine - parameters.slope * Values(x[id]) * sum.value();
}
