// Softmax and log-softmax over the channels of a pixel, and their gradients. LANES threads a pixel. Each reads its first
// HELD packs once, and keeps them; the others, of which only large pixels have some, it reads again for each step.

#ifndef SPECIALIZED
constant constexpr uint HELD = 8;
#endif

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

// The packs that a thread keeps; those past the end are pack 0.
struct Held {
    Values of[HELD > 0 ? HELD : 1];
};

uint held_pack(Part part, uint slot) {
    return part.first + slot * LANES;
}

template <typename T>
Held fetch(device const T* x, Part part) {
    Held held;
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        uint k = held_pack(part, slot);
        held.of[slot] = Values(x[part.start + (k < part.end ? k : 0)]);
    }
    return held;
}

float largest_in(device const Storage* x, Held held, Part part) {
    Values largest = Values(x[part.start]);
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        largest = max(largest, held.of[slot]);
    }
    for (uint k = held_pack(part, HELD); k < part.end; k += LANES) {
        largest = max(largest, Values(x[part.start + k]));
    }
    return largest_of_lanes(largest_of(largest));
}

kernel void softmax(device const Storage* x [[buffer(0)]],
                    constant Sizes& sizes [[buffer(1)]],
                    device Values* y [[buffer(2)]],
                    uint id [[thread_position_in_grid]]) {
    if (is_surplus(id, sizes.pixels * LANES)) {
        return;
    }
    Part part = part_of(id, sizes);
    Held held = fetch(x, part);
    float largest = largest_in(x, held, part);
    BlockedSum sum = empty_sum();
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        held.of[slot] = precise::exp(held.of[slot] - largest);
        sum.add(held_pack(part, slot) < part.end ? held.of[slot] : Values(0.0f));
    }
    for (uint k = held_pack(part, HELD); k < part.end; k += LANES) {
        sum.add(precise::exp(Values(x[part.start + k]) - largest));
    }
    float inverse = 1.0f / sum_of_lanes(sum_of(sum.value()));
    if (!part.stores) {
        return;
    }
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        uint k = held_pack(part, slot);
        if (k < part.end) {
            y[part.start + k] = held.of[slot] * inverse;
        }
    }
    for (uint k = held_pack(part, HELD); k < part.end; k += LANES) {
        y[part.start + k] = precise::exp(Values(x[part.start + k]) - largest) * inverse;
    }
}

// The logarithm is multiplied and subtracted by fma: fast math would be free to compute x - (largest + logarithm)
// otherwise, where the sum loses the digits of the logarithm.
kernel void log_softmax(device const Storage* x [[buffer(0)]],
                        constant Sizes& sizes [[buffer(1)]],
                        device Values* l [[buffer(2)]],
                        uint id [[thread_position_in_grid]]) {
    if (is_surplus(id, sizes.pixels * LANES)) {
        return;
    }
    Part part = part_of(id, sizes);
    Held held = fetch(x, part);
    float largest = largest_in(x, held, part);
    BlockedSum sum = empty_sum();
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        held.of[slot] -= largest;
        sum.add(held_pack(part, slot) < part.end ? precise::exp(held.of[slot]) : Values(0.0f));
    }
    for (uint k = held_pack(part, HELD); k < part.end; k += LANES) {
        sum.add(precise::exp(Values(x[part.start + k]) - largest));
    }
    Values logarithm = Values(precise::log2(sum_of_lanes(sum_of(sum.value()))));
    if (!part.stores) {
        return;
    }
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        uint k = held_pack(part, slot);
        if (k < part.end) {
            l[part.start + k] = fma(Values(-M_LN2_F), logarithm, held.of[slot]);
        }
    }
    for (uint k = held_pack(part, HELD); k < part.end; k += LANES) {
        l[part.start + k] = fma(Values(-M_LN2_F), logarithm, Values(x[part.start + k]) - largest);
    }
}

// dx = y * (g - sum(g * y))
kernel void softmax_gradient(device const Gradient* g [[buffer(0)]],
                             device const Storage* y [[buffer(1)]],
                             constant Sizes& sizes [[buffer(2)]],
                             device Values* dx [[buffer(3)]],
                             uint id [[thread_position_in_grid]]) {
    if (is_surplus(id, sizes.pixels * LANES)) {
        return;
    }
    Part part = part_of(id, sizes);
    Held of_g = fetch(g, part);
    Held of_y = fetch(y, part);
    BlockedSum sum = empty_sum();
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        sum.add(held_pack(part, slot) < part.end ? of_g.of[slot] * of_y.of[slot] : Values(0.0f));
    }
    for (uint k = held_pack(part, HELD); k < part.end; k += LANES) {
        sum.add(Values(g[part.start + k]) * Values(y[part.start + k]));
    }
    float total = sum_of_lanes(sum_of(sum.value()));
    if (!part.stores) {
        return;
    }
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        uint k = held_pack(part, slot);
        if (k < part.end) {
            dx[part.start + k] = of_y.of[slot] * (of_g.of[slot] - total);
        }
    }
    for (uint k = held_pack(part, HELD); k < part.end; k += LANES) {
        dx[part.start + k] = Values(y[part.start + k]) * (Values(g[part.start + k]) - total);
    }
}

// dx = g - exp(l) * sum(g)
kernel void log_softmax_gradient(device const Gradient* g [[buffer(0)]],
                                 device const Storage* l [[buffer(1)]],
                                 constant Sizes& sizes [[buffer(2)]],
                                 device Values* dx [[buffer(3)]],
                                 uint id [[thread_position_in_grid]]) {
    if (is_surplus(id, sizes.pixels * LANES)) {
        return;
    }
    Part part = part_of(id, sizes);
    Held of_g = fetch(g, part);
    Held of_l = fetch(l, part);
    BlockedSum sum = empty_sum();
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        sum.add(held_pack(part, slot) < part.end ? of_g.of[slot] : Values(0.0f));
    }
    for (uint k = held_pack(part, HELD); k < part.end; k += LANES) {
        sum.add(Values(g[part.start + k]));
    }
    float total = sum_of_lanes(sum_of(sum.value()));
    if (!part.stores) {
        return;
    }
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        uint k = held_pack(part, slot);
        if (k < part.end) {
            dx[part.start + k] = of_g.of[slot] - precise::exp(of_l.of[slot]) * total;
        }
    }
    for (uint k = held_pack(part, HELD); k < part.end; k += LANES) {
        dx[part.start + k] = Values(g[part.start + k]) - precise::exp(Values(l[part.start + k])) * total;
    }
}
