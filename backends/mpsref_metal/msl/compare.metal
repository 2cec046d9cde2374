// Comparison of two images: 1 where it holds, else 0.

#ifndef SPECIALIZED
constant int COMPARISON = 0;  // 0 equal, 1 not equal, 2 less, 3 less or equal, 4 greater, 5 greater or equal
#endif

Flags holds(Values x, Values y, float threshold) {
    if (COMPARISON < 2) {
        Values distance = fabs(x - y);
        return COMPARISON == 0 ? distance <= threshold : distance > threshold;
    }
    if (COMPARISON < 4) {
        return COMPARISON == 2 ? x < y : x <= y;
    }
    return COMPARISON == 4 ? x > y : x >= y;
}

kernel void forward(device const Primary* x [[buffer(0)]],
                    device const Secondary* y [[buffer(1)]],
                    constant Pairing& pairing [[buffer(2)]],
                    constant float& threshold [[buffer(3)]],
                    device Values* result [[buffer(4)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= pairing.count) {
        return;
    }
    Place at = place_in(id, pairing.extent);
    Values a = Values(x[element_of(pairing.first, at)]);
    Values b = Values(y[element_of(pairing.second, at)]);
    result[id] = select(Values(0.0f), Values(1.0f), holds(a, b, threshold));
}
