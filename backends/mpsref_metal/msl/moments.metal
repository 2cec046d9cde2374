// Mean and variance in a form that can be merged. Follows the prelude.

constant constexpr uint TILE = 8;  // pixels that a thread reads before it computes

struct Moments {
    float n;
    Values mean;
    Values m2;
};

// Counts are multiplied as floats: the product of the integers could overflow.
Moments merged(Moments a, Moments b) {
    if (a.n == 0 || b.n == 0) {
        return a.n == 0 ? b : a;
    }
    float share = b.n / (a.n + b.n);
    Values delta = b.mean - a.mean;
    return {a.n + b.n, a.mean + delta * share, a.m2 + b.m2 + delta * delta * (a.n * share)};
}

// Mean and m2 of a few pixels: the mean from distances to the first pixel, m2 from distances to the mean.
Moments moments_of_tile(thread const Values* x, uint n) {
    Values sum = Values(0.0f);
    for (uint k = 1; k < TILE; ++k) {
        sum += k < n ? x[k] - x[0] : Values(0.0f);
    }
    Values distance = sum / float(n);
    Values squares = Values(0.0f);
    Values rest = Values(0.0f);
    for (uint k = 0; k < TILE; ++k) {
        Values d = k < n ? (x[k] - x[0]) - distance : Values(0.0f);
        squares += d * d;
        rest += d;
    }
    Values m2 = max(squares - rest * rest / float(n), Values(0.0f));  // the rest only removes rounding
    return {float(n), x[0] + distance, m2};
}

// The moments of WIDTH channels of `pixels` pixels, which are `stride` packs apart. Each is read once: the moments of
// TILE pixels at a time are merged.
Moments moments_of(device const Storage* x, uint stride, uint pixels) {
    Moments own = {0, Values(0.0f), Values(0.0f)};
    for (uint first = 0; first < pixels; first += TILE) {
        uint n = min(TILE, pixels - first);
        Values tile[TILE];
        for (uint k = 0; k < TILE; ++k) {
            tile[k] = Values(x[Index(first + min(k, n - 1)) * stride]);
        }
        own = merged(own, moments_of_tile(tile, n));
    }
    return own;
}
