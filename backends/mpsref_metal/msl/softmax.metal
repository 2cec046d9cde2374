// Softmax and log-softmax over the channels of a pixel, and their gradients. LANES threads a pixel.

struct Sizes {
    uint pixels;    // of all images
    uint channels;  // packs
};

// The part of a pixel that a thread has: the packs first, first + LANES, ... below end. Threads past the last pixel
// compute that pixel again, since their lanes take part in sums, and store nothing.
struct Part {
    Index start;
    uint first;
    uint end;
    bool stores;
};

Part part_of(uint id, constant Sizes& sizes) {
    uint pixel = id / LANES;
    return {Index(min(pixel, sizes.pixels - 1)) * sizes.channels, id % LANES, sizes.channels, pixel < sizes.pixels};
}

float largest_in(device const Storage* x, Part part) {
    Values largest = Values(x[part.start]);
    for (uint k = part.first; k < part.end; k += LANES) {
        largest = max(largest, Values(x[part.start + k]));
    }
    return largest_of_lanes(largest_of(largest));
}

kernel void softmax(device const Storage* x [[buffer(0)]],
                    constant Sizes& sizes [[buffer(1)]],
                    device Values* y [[buffer(2)]],
                    uint id [[thread_position_in_grid]]) {
    Part part = part_of(id, sizes);
    float largest = largest_in(x, part);
    BlockedSum sum = empty_sum();
    for (uint k = part.first; k < part.end; k += LANES) {
        sum.add(precise::exp(Values(x[part.start + k]) - largest));
    }
    float total = sum_of_lanes(sum_of(sum.value()));
    for (uint k = part.first; part.stores && k < part.end; k += LANES) {
        y[part.start + k] = precise::exp(Values(x[part.start + k]) - largest) / total;
    }
}

// The difference from the largest value passes through memory: fast math would be free to compute x - (largest +
// logarithm) otherwise, where the sum loses the digits of the logarithm.
kernel void log_softmax(device const Storage* x [[buffer(0)]],
                        constant Sizes& sizes [[buffer(1)]],
                        device Values* l [[buffer(2)]],
                        uint id [[thread_position_in_grid]]) {
    Part part = part_of(id, sizes);
    float largest = largest_in(x, part);
    BlockedSum sum = empty_sum();
    for (uint k = part.first; k < part.end; k += LANES) {
        Values below = Values(x[part.start + k]) - largest;
        sum.add(precise::exp(below));
        if (part.stores) {
            l[part.start + k] = below;
        }
    }
    float logarithm = precise::log(sum_of_lanes(sum_of(sum.value())));
    for (uint k = part.first; part.stores && k < part.end; k += LANES) {
        l[part.start + k] -= logarithm;
    }
}

// dx = y * (g - sum(g * y))
kernel void softmax_gradient(device const Gradient* g [[buffer(0)]],
                             device const Storage* y [[buffer(1)]],
                             constant Sizes& sizes [[buffer(2)]],
                             device Values* dx [[buffer(3)]],
                             uint id [[thread_position_in_grid]]) {
    Part part = part_of(id, sizes);
    BlockedSum sum = empty_sum();
    for (uint k = part.first; k < part.end; k += LANES) {
        sum.add(Values(g[part.start + k]) * Values(y[part.start + k]));
    }
    float total = sum_of_lanes(sum_of(sum.value()));
    for (uint k = part.first; part.stores && k < part.end; k += LANES) {
        dx[part.start + k] = Values(y[part.start + k]) * (Values(g[part.start + k]) - total);
    }
}

// dx = g - exp(l) * sum(g)
kernel void log_softmax_gradient(device const Gradient* g [[buffer(0)]],
                                 device const Storage* l [[buffer(1)]],
                                 constant Sizes& sizes [[buffer(2)]],
                                 device Values* dx [[buffer(3)]],
                                 uint id [[thread_position_in_grid]]) {
    Part part = part_of(id, sizes);
    BlockedSum sum = empty_sum();
    for (uint k = part.first; k < part.end; k += LANES) {
        sum.add(Values(g[part.start + k]));
    }
    float total = sum_of_lanes(sum_of(sum.value()));
    for (uint k = part.first; part.stores && k < part.end; k += LANES) {
        dx[part.start + k] = Values(g[part.start + k]) - precise::exp(Values(l[part.start + k])) * total;
    }
}
