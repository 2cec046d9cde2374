// Arithmetic of two images, with scales, a bias and a clamp; and the gradient for one operand.

struct Arithmetic {
    uint operation;  // 0 p x + q y + bias, 1 (p x) (q y) + bias, 2 (p x) / (q y) + bias
    uint clamps;     // whether a bound is finite; an infinite bound is passed as the largest finite number
    float p;
    float q;
    float bias;
    float low;
    float high;
};

Values before_clamp(constant Arithmetic& numbers, Values x, Values y) {
    Values a = numbers.p * x;
    Values b = numbers.q * y;
    Values r = numbers.operation == 0 ? a + b : numbers.operation == 1 ? a * b : a / b;
    return r + numbers.bias;
}

kernel void forward(device const Primary* x [[buffer(0)]],
                    device const Secondary* y [[buffer(1)]],
                    constant Pairing& pairing [[buffer(2)]],
                    constant Arithmetic& numbers [[buffer(3)]],
                    device Values* result [[buffer(4)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= pairing.count) {
        return;
    }
    Place at = place_in(id, pairing.extent);
    Values r =
        before_clamp(numbers, Values(x[element_of(pairing.first, at)]), Values(y[element_of(pairing.second, at)]));
    result[id] = numbers.clamps ? min(max(r, Values(numbers.low)), Values(numbers.high)) : r;
}

// dr/d(operand) = scale, multiplied by other_scale * operand number `other` unless `other` is negative.
struct Slope {
    float scale;
    float other_scale;
    int other;
};

// Whether all columns, and all channels, of a row are summed up: 1 or 0.
struct Folds {
    uint columns;
    uint channels;
};

// The values that the term of an element depends on; operands that are not needed are 0.
struct Element {
    Values g;
    Values x;
    Values y;
    Values r;  // before the clamp
};

Element element_at(constant Pairing& pairing,
                   constant Arithmetic& numbers,
                   bool reads_x,
                   bool reads_y,
                   device const Gradient* g,
                   device const Primary* x,
                   device const Secondary* y,
                   Place at) {
    Index pixel = index_of(at.image, pairing.height, pairing.width, int(at.row), int(at.column), pairing.channels,
                           at.channel);
    Element element = {Values(g[pixel]), Values(0.0f), Values(0.0f), Values(0.0f)};
    if (numbers.clamps || reads_x) {
        element.x = Values(x[element_of(pairing.first, at)]);
    }
    if (numbers.clamps || reads_y) {
        element.y = Values(y[element_of(pairing.second, at)]);
    }
    if (numbers.clamps) {
        element.r = before_clamp(numbers, element.x, element.y);
    }
    return element;
}

Values term_of(Element element, constant Slope& slope, constant Arithmetic& numbers) {
    Values term = slope.scale * element.g;
    if (slope.other >= 0) {
        term *= slope.other_scale * (slope.other == 0 ? element.x : element.y);
    }
    if (numbers.clamps) {
        term = select(Values(0.0f), term, element.r > numbers.low);
        term = select(Values(0.0f), term, element.r < numbers.high);
    }
    return term;
}

void put_sum(device float* sums, uint id, Values sum, constant Folds& folds) {
    if (!folds.channels) {
        ((device Values*)sums)[id] = sum;
        return;
    }
    float total = sum_of_lanes(sum_of(sum));
    if (id % LANES == 0) {
        sums[id / LANES] = total;
    }
}

// LANES threads compute a sum: there is one for each row, and for each column and pack that are not summed up. LANES is
// 1 unless all channels are summed up, to one value.
kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Primary* x [[buffer(1)]],
                     device const Secondary* y [[buffer(2)]],
                     constant Pairing& pairing [[buffer(3)]],
                     constant Arithmetic& numbers [[buffer(4)]],
                     constant Folds& folds [[buffer(5)]],
                     constant Slope& slope [[buffer(6)]],
                     device float* sums [[buffer(7)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= pairing.count) {
        return;
    }
    Place first = place_in(id / LANES, pairing.extent);
    uint columns = folds.columns ? pairing.width : 1;
    uint channels = folds.channels ? pairing.channels : 1;
    BlockedSum sum = empty_sum();
    for (uint column = first.column; column < first.column + columns; ++column) {
        for (uint channel = first.channel + id % LANES; channel < first.channel + channels; channel += LANES) {
            Place at = {first.image, first.row, column, channel};
            Element element = element_at(pairing, numbers, slope.other == 0, slope.other == 1, g, x, y, at);
            sum.add(term_of(element, slope, numbers));
        }
    }
    put_sum(sums, id, sum.value(), folds);
}

// Like `gradient`, for both operands: slopes[0] and `whole` belong to the operand that has the size of the result.
kernel void gradients(device const Gradient* g [[buffer(0)]],
                      device const Primary* x [[buffer(1)]],
                      device const Secondary* y [[buffer(2)]],
                      constant Pairing& pairing [[buffer(3)]],
                      constant Arithmetic& numbers [[buffer(4)]],
                      constant Folds& folds [[buffer(5)]],
                      constant Slope* slopes [[buffer(6)]],
                      device Values* whole [[buffer(7)]],
                      device float* sums [[buffer(8)]],
                      uint id [[thread_position_in_grid]]) {
    if (id >= pairing.count) {
        return;
    }
    Place first = place_in(id / LANES, pairing.extent);
    uint columns = folds.columns ? pairing.width : 1;
    uint channels = folds.channels ? pairing.channels : 1;
    bool reads_x = slopes[0].other == 0 || slopes[1].other == 0;
    bool reads_y = slopes[0].other == 1 || slopes[1].other == 1;
    BlockedSum sum = empty_sum();
    for (uint column = first.column; column < first.column + columns; ++column) {
        for (uint channel = first.channel + id % LANES; channel < first.channel + channels; channel += LANES) {
            Place at = {first.image, first.row, column, channel};
            Element element = element_at(pairing, numbers, reads_x, reads_y, g, x, y, at);
            whole[index_of(at.image, pairing.height, pairing.width, int(at.row), int(column), pairing.channels,
                           channel)] = term_of(element, slopes[0], numbers);
            sum.add(term_of(element, slopes[1], numbers));
        }
    }
    put_sum(sums, id, sum.value(), folds);
}
