// Cross-channel normalization. The gradient takes two steps: what each channel contributes to itself and to all
// channels of its window, then for each channel the sum over the channels whose windows contain it. `Run` is a clipped
// run of channels. If WHOLE_PIXELS is defined, one launch does both, with whole pixels in threadgroup memory.

struct Parameters {
    float beta;
    float delta;
    float scale;  // alpha / K
    float slope;  // 2 * alpha * beta / K
};

#ifndef WHOLE_PIXELS

struct Run {
    int first;
    int count;
};

struct ChannelSizes {
    uint count;
    Divisor channels;
};

// L = delta + alpha / K * sum of squares
float base_of(device const Storage* x, uint id, device const Run* windows, constant ChannelSizes& sizes,
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
                    constant ChannelSizes& sizes [[buffer(2)]],
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
                   constant ChannelSizes& sizes [[buffer(3)]],
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
                     constant ChannelSizes& sizes [[buffer(4)]],
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

#else

struct PixelSizes {
    uint pixels;    // of all images
    uint together;  // pixels of a threadgroup
    Divisor packs;  // of a pixel; WIDTH is 4
    int before;     // channels of a window before its centre, at most WIDTH
    int after;
};

// Where the pack of a thread is. In threadgroup memory, packs of zeros separate and enclose the pixels.
struct PackPlace {
    Index at;
    uint slot;
    bool exists;
};

PackPlace pack_place(uint group, uint member, constant PixelSizes& sizes) {
    uint row = quotient(member, sizes.packs);
    uint pixel = group * sizes.together + row;
    Index first = Index(group) * sizes.together * sizes.packs.value;
    return {first + member, member + row + 1, row < sizes.together && pixel < sizes.pixels};
}

void put_zeros(threadgroup float4* tile, uint member, constant PixelSizes& sizes) {
    if (member <= sizes.together) {
        tile[member * (sizes.packs.value + 1)] = float4(0.0f);
    }
}

// For each channel of a pack, the sum from `before` channels before it to `after` channels after it.
float4 sum_around(threadgroup const float4* pack, int before, int after) {
    float4 packs[3] = {pack[-1], pack[0], pack[1]};
    float4 sum = float4(0.0f);
    #pragma unroll
    for (int distance = -4; distance <= 4; ++distance) {
        if (-before <= distance && distance <= after) {
            float4 term;
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                term[j] = packs[(4 + distance + j) / 4][(4 + distance + j) % 4];
            }
            sum += term;
        }
    }
    return sum;
}

[[max_total_threads_per_threadgroup(THREADS)]]
kernel void forward(device const Storage* x [[buffer(0)]],
                    constant PixelSizes& sizes [[buffer(1)]],
                    constant Parameters& parameters [[buffer(2)]],
                    device float4* y [[buffer(3)]],
                    uint group [[threadgroup_position_in_grid]],
                    uint member [[thread_position_in_threadgroup]]) {
    threadgroup float4 squares[SLOTS];
    PackPlace place = pack_place(group, member, sizes);
    float4 value = float4(0.0f);
    put_zeros(squares, member, sizes);
    if (place.exists) {
        value = float4(x[place.at]);
        squares[place.slot] = value * value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (place.exists) {
        float4 sum = sum_around(squares + place.slot, sizes.before, sizes.after);
        y[place.at] = value * inverse_power(parameters.delta + parameters.scale * sum, parameters.beta);
    }
}

[[max_total_threads_per_threadgroup(THREADS)]]
kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Storage* x [[buffer(1)]],
                     constant PixelSizes& sizes [[buffer(2)]],
                     constant Parameters& parameters [[buffer(3)]],
                     device float4* dx [[buffer(4)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint member [[thread_position_in_threadgroup]]) {
    threadgroup float4 squares[SLOTS];
    threadgroup float4 shares[SLOTS];
    PackPlace place = pack_place(group, member, sizes);
    float4 value = float4(0.0f);
    float4 upstream = float4(0.0f);
    put_zeros(squares, member, sizes);
    put_zeros(shares, member, sizes);
    if (place.exists) {
        value = float4(x[place.at]);
        upstream = float4(g[place.at]);
        squares[place.slot] = value * value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (place.exists) {
        float4 sum = sum_around(squares + place.slot, sizes.before, sizes.after);
        float4 base = parameters.delta + parameters.scale * sum;
        upstream *= inverse_power(base, parameters.beta);
        shares[place.slot] = upstream * (value / base);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (place.exists) {
        float4 sum = sum_around(shares + place.slot, sizes.after, sizes.before);
        dx[place.at] = upstream - parameters.slope * value * sum;
    }
}

#endif
