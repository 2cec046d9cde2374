// Local contrast normalization. The gradient takes two steps: what each output contributes to its own pixel and to all
// pixels of its window, then for each source pixel the sum over the outputs that read it.

struct Parameters {
    float alpha;
    float beta;
    float delta;
    float p0;
    float pm;
    float ps;
    float taps;        // N, including taps outside the image
    float per_tap;     // 1 / N
    float per_column;  // 1 / width of the window; 0 if it is taller than the image
};

struct Moments {
    Values distances;  // sum of x - near
    Values squares;    // sum of (x - near)^2
};

Moments operator+(Moments a, Moments b) {
    return {a.distances + b.distances, a.squares + b.squares};
}

struct Distances {
    typedef Moments Sum;
    device const Storage* x;
    Values near;

    Moments operator()(Index at, uint mask) {
        Values distance = masked(Values(x[at]) - near, mask);
        return {distance, distance * distance};
    }
};

// `near` is the mean of a row that all windows contain, or 0 where they contain rows of zeros. Squares of distances
// from it lose few digits: the square of the distance of `near` from the mean of a window is at most the variance times
// the height of the window.
Distances distances_of(device const Storage* x, Strip strip, constant Parameters& parameters) {
    Distances distances = {x, Values(0.0f)};
    int row = strip.rows[STRIP - 1].first;
    if (row < end_of(strip.rows[0])) {
        distances.near = sum_of_row(distances, strip, row).distances * parameters.per_column;
    }
    return distances;
}

struct Contrast {
    Values mean;
    Values base;  // T = delta + alpha * variance
};

Contrast contrast_of(Moments inside, Values near, Run rows, Run columns, constant Parameters& parameters) {
    float outside = parameters.taps - float(rows.count) * float(columns.count);
    Values distance = (inside.distances - outside * near) * parameters.per_tap;
    Values square = (inside.squares + outside * (near * near)) * parameters.per_tap;
    Values variance = max(square - distance * distance, Values(0.0f));
    return {near + distance, parameters.delta + parameters.alpha * variance};
}

// y = pm + ps * (x - p0 * mean) / T**beta
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
    Strip strip = strip_of(id, outputs_of(sizes), source_of(sizes), sizes, rows, columns);
    Distances distances = distances_of(x, strip, parameters);
    Windows<Distances> moments = windows_of(distances, strip);
    #pragma unroll
    for (uint j = 0; j < STRIP; ++j) {
        Moments sums = moments.sum_of(strip, j);
        if (j < strip.count) {
            Contrast contrast = contrast_of(sums, distances.near, strip.rows[j], strip.columns, parameters);
            Values difference = centre_of(x, strip, j) - parameters.p0 * contrast.mean;
            Values value = parameters.ps * difference * inverse_power(contrast.base, parameters.beta);
            y[strip.index_of_result(j)] = parameters.pm + value;
        }
    }
}

// own = ps * g / T**beta, share = 2 * alpha * beta / N * own * (x - p0 * mean) / T, rest = p0 / N * own - share * mean
kernel void shares(device const Gradient* g [[buffer(0)]],
                   device const Storage* x [[buffer(1)]],
                   device const Run* rows [[buffer(2)]],
                   device const Run* columns [[buffer(3)]],
                   constant WindowSizes& sizes [[buffer(4)]],
                   constant Parameters& parameters [[buffer(5)]],
                   device Values* own [[buffer(6)]],
                   device Values* share [[buffer(7)]],
                   device Values* rest [[buffer(8)]],
                   uint id [[thread_position_in_grid]]) {
    if (id >= sizes.count) {
        return;
    }
    Strip strip = strip_of(id, outputs_of(sizes), source_of(sizes), sizes, rows, columns);
    Distances distances = distances_of(x, strip, parameters);
    Windows<Distances> moments = windows_of(distances, strip);
    float slope = 2 * parameters.alpha * parameters.beta * parameters.per_tap;
    #pragma unroll
    for (uint j = 0; j < STRIP; ++j) {
        Moments sums = moments.sum_of(strip, j);
        if (j < strip.count) {
            Contrast contrast = contrast_of(sums, distances.near, strip.rows[j], strip.columns, parameters);
            Index output = strip.index_of_result(j);
            Values value = parameters.ps * Values(g[output]) * inverse_power(contrast.base, parameters.beta);
            Values difference = centre_of(x, strip, j) - parameters.p0 * contrast.mean;
            Values of_variance = slope * value * (difference / contrast.base);
            own[output] = value;
            share[output] = of_variance;
            rest[output] = parameters.p0 * parameters.per_tap * value - of_variance * contrast.mean;
        }
    }
}

struct Pair {
    Values shares;
    Values rests;
};

Pair operator+(Pair a, Pair b) {
    return {a.shares + b.shares, a.rests + b.rests};
}

struct Shares {
    typedef Pair Sum;
    device const Values* share;
    device const Values* rest;

    Pair operator()(Index at, uint mask) {
        return {masked(share[at], mask), masked(rest[at], mask)};
    }
};

// dx = own - sum of (p0 / N * own + share * (x - mean)) = own - (sum of rests + x * sum of shares). The rounding errors
// of both sums are no larger than those of the means.
kernel void gradient(device const Storage* x [[buffer(0)]],
                     device const Values* own [[buffer(1)]],
                     device const Values* share [[buffer(2)]],
                     device const Values* rest [[buffer(3)]],
                     device const Run* rows [[buffer(4)]],
                     device const Run* columns [[buffer(5)]],
                     constant WindowSizes& sizes [[buffer(6)]],
                     constant Parameters& parameters [[buffer(7)]],
                     device Values* dx [[buffer(8)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= sizes.count) {
        return;
    }
    Strip strip = strip_of(id, source_of(sizes), outputs_of(sizes), sizes, rows, columns);
    Windows<Shares> terms = windows_of(Shares{share, rest}, strip);
    #pragma unroll
    for (uint j = 0; j < STRIP; ++j) {
        Pair sums = terms.sum_of(strip, j);
        if (j < strip.count) {
            Index pixel = strip.index_of_result(j);
            dx[pixel] = centre_of(own, strip, j) - (sums.rests + Values(x[pixel]) * sums.shares);
        }
    }
}
