// Softmax and log-softmax over the channels of a pixel, and their gradients. LANES threads share a pixel. Each keeps
// its first HELD packs in registers, and reads the others, which only large pixels have, again in each step.

#ifndef SPECIALIZED
constant constexpr uint HELD = 8;
#endif

struct SoftmaxSizes {
    uint pixels;    // of all images
    uint channels;  // packs
};

// The packs of a thread: first, first + LANES, ... below end. Threads past the last pixel compute that pixel again,
// since their lanes take part in sums, and store nothing.
struct Lane {
    Index start;
    uint first;
    uint end;
    bool stores;
};

Lane lane_of(uint id, constant SoftmaxSizes& sizes) {
    uint pixel = id / LANES;
    return {Index(min(pixel, sizes.pixels - 1)) * sizes.channels, id % LANES, sizes.channels, pixel < sizes.pixels};
}

// The packs that a thread keeps in registers; those past the end are pack 0.
struct Held {
    Values of[HELD > 0 ? HELD : 1];
};

uint held_pack(Lane lane, uint slot) {
    return lane.first + slot * LANES;
}

template <typename T>
Held fetch(device const T* x, Lane lane) {
    Held held;
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        uint k = held_pack(lane, slot);
        held.of[slot] = Values(x[lane.start + (k < lane.end ? k : 0)]);
    }
    return held;
}

float largest_in(device const Storage* x, Held held, Lane lane) {
    Values largest = Values(x[lane.start]);
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        largest = max(largest, held.of[slot]);
    }
    for (uint k = held_pack(lane, HELD); k < lane.end; k += LANES) {
        largest = max(largest, Values(x[lane.start + k]));
    }
    return largest_of_lanes(largest_of(largest));
}

kernel void softmax(device const Storage* x [[buffer(0)]],
                    constant SoftmaxSizes& sizes [[buffer(1)]],
                    device Values* y [[buffer(2)]],
                    uint id [[thread_position_in_grid]]) {
    if (is_surplus(id, sizes.pixels * LANES)) {
        return;
    }
    Lane lane = lane_of(id, sizes);
    Held held = fetch(x, lane);
    float largest = largest_in(x, held, lane);
    BlockedSum sum = empty_sum();
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        held.of[slot] = precise::exp(held.of[slot] - largest);
        sum.add(held_pack(lane, slot) < lane.end ? held.of[slot] : Values(0.0f));
    }
    for (uint k = held_pack(lane, HELD); k < lane.end; k += LANES) {
        sum.add(precise::exp(Values(x[lane.start + k]) - largest));
    }
    float inverse = 1.0f / sum_of_lanes(sum_of(sum.value()));
    if (!lane.stores) {
        return;
    }
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        uint k = held_pack(lane, slot);
        if (k < lane.end) {
            y[lane.start + k] = held.of[slot] * inverse;
        }
    }
    for (uint k = held_pack(lane, HELD); k < lane.end; k += LANES) {
        y[lane.start + k] = precise::exp(Values(x[lane.start + k]) - largest) * inverse;
    }
}

// The logarithm is multiplied and subtracted by fma: fast math would be free to compute x - (largest + logarithm)
// otherwise, where the sum loses the digits of the logarithm.
kernel void log_softmax(device const Storage* x [[buffer(0)]],
                        constant SoftmaxSizes& sizes [[buffer(1)]],
                        device Values* l [[buffer(2)]],
                        uint id [[thread_position_in_grid]]) {
    if (is_surplus(id, sizes.pixels * LANES)) {
        return;
    }
    Lane lane = lane_of(id, sizes);
    Held held = fetch(x, lane);
    float largest = largest_in(x, held, lane);
    BlockedSum sum = empty_sum();
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        held.of[slot] -= largest;
        sum.add(held_pack(lane, slot) < lane.end ? precise::exp(held.of[slot]) : Values(0.0f));
    }
    for (uint k = held_pack(lane, HELD); k < lane.end; k += LANES) {
        sum.add(precise::exp(Values(x[lane.start + k]) - largest));
    }
    Values logarithm = Values(precise::log2(sum_of_lanes(sum_of(sum.value()))));
    if (!lane.stores) {
        return;
    }
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        uint k = held_pack(lane, slot);
        if (k < lane.end) {
            l[lane.start + k] = fma(Values(-M_LN2_F), logarithm, held.of[slot]);
        }
    }
    for (uint k = held_pack(lane, HELD); k < lane.end; k += LANES) {
        l[lane.start + k] = fma(Values(-M_LN2_F), logarithm, Values(x[lane.start + k]) - largest);
    }
}

// dx = y * (g - sum(g * y))
kernel void softmax_gradient(device const Gradient* g [[buffer(0)]],
                             device const Storage* y [[buffer(1)]],
                             constant SoftmaxSizes& sizes [[buffer(2)]],
                             device Values* dx [[buffer(3)]],
                             uint id [[thread_position_in_grid]]) {
    if (is_surplus(id, sizes.pixels * LANES)) {
        return;
    }
    Lane lane = lane_of(id, sizes);
    Held of_g = fetch(g, lane);
    Held of_y = fetch(y, lane);
    BlockedSum sum = empty_sum();
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        sum.add(held_pack(lane, slot) < lane.end ? of_g.of[slot] * of_y.of[slot] : Values(0.0f));
    }
    for (uint k = held_pack(lane, HELD); k < lane.end; k += LANES) {
        sum.add(Values(g[lane.start + k]) * Values(y[lane.start + k]));
    }
    float total = sum_of_lanes(sum_of(sum.value()));
    if (!lane.stores) {
        return;
    }
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        uint k = held_pack(lane, slot);
        if (k < lane.end) {
            dx[lane.start + k] = of_y.of[slot] * (of_g.of[slot] - total);
        }
    }
    for (uint k = held_pack(lane, HELD); k < lane.end; k += LANES) {
        dx[lane.start + k] = Values(y[lane.start + k]) * (Values(g[lane.start + k]) - total);
    }
}

// dx = g - exp(l) * sum(g)
kernel void log_softmax_gradient(device const Gradient* g [[buffer(0)]],
                                 device const Storage* l [[buffer(1)]],
                                 constant SoftmaxSizes& sizes [[buffer(2)]],
                                 device Values* dx [[buffer(3)]],
                                 uint id [[thread_position_in_grid]]) {
    if (is_surplus(id, sizes.pixels * LANES)) {
        return;
    }
    Lane lane = lane_of(id, sizes);
    Held of_g = fetch(g, lane);
    Held of_l = fetch(l, lane);
    BlockedSum sum = empty_sum();
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        sum.add(held_pack(lane, slot) < lane.end ? of_g.of[slot] : Values(0.0f));
    }
    for (uint k = held_pack(lane, HELD); k < lane.end; k += LANES) {
        sum.add(Values(g[lane.start + k]));
    }
    float total = sum_of_lanes(sum_of(sum.value()));
    if (!lane.stores) {
        return;
    }
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        uint k = held_pack(lane, slot);
        if (k < lane.end) {
            dx[lane.start + k] = of_g.of[slot] - precise::exp(of_l.of[slot]) * total;
        }
    }
    for (uint k = held_pack(lane, HELD); k < lane.end; k += LANES) {
        dx[lane.start + k] = Values(g[lane.start + k]) - precise::exp(Values(l[lane.start + k])) * total;
    }
}
