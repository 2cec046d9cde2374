// Cross-channel normalization. The gradient takes two steps: what each channel hands on, to itself and to all channels
// of its window, then for each channel the sum over those whose window has it. `Run` is a run of channels, clipped.

struct Run {
    int first;
    int count;
};

struct Parameters {
    float beta;
    float delta;
    float scale;  // alpha / K
    float slope;  // 2 * alpha * beta / K
};

struct Sizes {
    uint count;
    Divisor channels;
};

// L = delta + alpha / K * sum of squares
float base_of(device const Storage* x, uint id, device const Run* windows, constant Sizes& sizes,
              constant Parameters& parameters) {
    uint channel = remainder(id, sizes.channels);
    Run window = windows[channel];
    Index pixel = Index(id - channel);
    BlockedSum squares = empty_sum();
    for (int q = window.first; q < window.first + window.count; ++q) {
        float value = float(x[pixel + Index(q)]);
        squares.add(value * value);
    }
    return parameters.delta + parameters.scale * squares.value();
}

// y = x / L**beta
kernel void forward(device const Storage* x [[buffer(0)]],
                    device const Run* windows [[buffer(1)]],
                    constant Sizes& sizes [[buffer(2)]],
                    constant Parameters& parameters [[buffer(3)]],
                    device float* y [[buffer(4)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= sizes.count) {
        return;
    }
    y[id] = float(x[id]) * inverse_power(base_of(x, id, windows, sizes, parameters), parameters.beta);
}

// own = g / L**beta, share = own * x / L
kernel void shares(device const Gradient* g [[buffer(0)]],
                   device const Storage* x [[buffer(1)]],
                   device const Run* windows [[buffer(2)]],
                   constant Sizes& sizes [[buffer(3)]],
                   constant Parameters& parameters [[buffer(4)]],
                   device float* own [[buffer(5)]],
                   device float* share [[buffer(6)]],
                   uint id [[thread_position_in_grid]]) {
    if (id >= sizes.count) {
        return;
    }
    float base = base_of(x, id, windows, sizes, parameters);
    float value = float(g[id]) * inverse_power(base, parameters.beta);
    own[id] = value;
    share[id] = value * (float(x[id]) / base);
}

// dx = own - 2 * alpha * beta / K * x * sum of shares
kernel void gradient(device const Storage* x [[buffer(0)]],
                     device const float* own [[buffer(1)]],
                     device const float* share [[buffer(2)]],
                     device const Run* windows [[buffer(3)]],
                     constant Sizes& sizes [[buffer(4)]],
                     constant Parameters& parameters [[buffer(5)]],
                     device float* dx [[buffer(6)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= sizes.count) {
        return;
    }
    uint channel = remainder(id, sizes.channels);
    Run window = windows[channel];
    Index pixel = Index(id - channel);
    BlockedSum sum = empty_sum();
    for (int q = window.first; q < window.first + window.count; ++q) {
        sum.add(share[pixel + Index(q)]);
    }
    dx[id] = own[id] - parameters.slope * float(x[id]) * sum.value();
}
