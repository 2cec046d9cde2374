// Arithmetic of two images, with scales, a bias and a clamp; and the gradient for one operand.

#ifndef SPECIALIZED
constant int OPERATION = 0;     // 0 p x + q y + bias, 1 (p x) (q y) + bias, 2 (p x) / (q y) + bias
constant bool CLAMPED = false;  // whether a bound is finite; an infinite one comes as the largest number
#endif

struct Numbers {
    float p;
    float q;
    float bias;
    float low;
    float high;
};

Values before_clamp(constant Numbers& numbers, Values x, Values y) {
    Values a = numbers.p * x;
    Values b = numbers.q * y;
    Values r = OPERATION == 0 ? a + b : OPERATION == 1 ? a * b : a / b;
    return r + numbers.bias;
}

kernel void forward(device const Primary* x [[buffer(0)]],
                    device const Secondary* y [[buffer(1)]],
                    constant Pairing& pairing [[buffer(2)]],
                    constant Numbers& numbers [[buffer(3)]],
                    device Values* result [[buffer(4)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= pairing.count) {
        return;
    }
    Place at = place_in(id, pairing.height, pairing.width, pairing.channels);
    Values r =
        before_clamp(numbers, Values(x[element_of(pairing.first, at)]), Values(y[element_of(pairing.second, at)]));
    result[id] = CLAMPED ? min(max(r, Values(numbers.low)), Values(numbers.high)) : r;
}

// dr/d(operand) = scale, times other_scale times the operand number `other` where that is 0 or 1.
// A fold is 1 where all columns (all channels) of a row are summed up, else 0.
struct Slope {
    float scale;
    float other_scale;
    int other;
    uint fold_columns;
    uint fold_channels;
};

Values term_of(constant Pairing& pairing,
               constant Numbers& numbers,
               constant Slope& slope,
               device const Gradient* g,
               device const Primary* x,
               device const Secondary* y,
               Place at) {
    Index pixel = index_of(at.image, pairing.height, pairing.width, int(at.row), int(at.column), pairing.channels,
                           at.channel);
    Values term = slope.scale * Values(g[pixel]);
    // An operand that is not needed is not there.
    Values a = Values(0.0f);
    Values b = Values(0.0f);
    if (CLAMPED || slope.other == 0) {
        a = Values(x[element_of(pairing.first, at)]);
    }
    if (CLAMPED || slope.other == 1) {
        b = Values(y[element_of(pairing.second, at)]);
    }
    if (slope.other >= 0) {
        term *= slope.other_scale * (slope.other == 0 ? a : b);
    }
    if (CLAMPED) {
        Values r = before_clamp(numbers, a, b);
        term = select(Values(0.0f), term, r > numbers.low);
        term = select(Values(0.0f), term, r < numbers.high);
    }
    return term;
}

// One thread for each row, and for each column and WIDTH channels that are not summed up; a sum over all channels has
// one value.
kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Primary* x [[buffer(1)]],
                     device const Secondary* y [[buffer(2)]],
                     constant Pairing& pairing [[buffer(3)]],
                     constant Numbers& numbers [[buffer(4)]],
                     constant Slope& slope [[buffer(5)]],
                     device float* sums [[buffer(6)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= pairing.count) {
        return;
    }
    uint columns = slope.fold_columns ? pairing.width : 1;
    uint channels = slope.fold_channels ? pairing.channels : 1;
    Place first = place_in(id, pairing.height, pairing.width / columns, pairing.channels / channels);
    BlockedSum sum = empty_sum();
    for (uint column = first.column; column < first.column + columns; ++column) {
        for (uint channel = first.channel; channel < first.channel + channels; ++channel) {
            Place at = {first.image, first.row, column, channel};
            sum.add(term_of(pairing, numbers, slope, g, x, y, at));
        }
    }
    if (slope.fold_channels) {
        sums[id] = sum_of(sum.value());
    } else {
        ((device Values*)sums)[id] = sum.value();
    }
}
