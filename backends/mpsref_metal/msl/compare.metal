// Comparison of two images: 1 where it holds, else 0.

struct Comparison {
    uint type;
    float threshold;
};

Flags holds(Values x, Values y, constant Comparison& comparison) {
    switch (comparison.type) {
        case 0:  // equal
            return fabs(x - y) <= comparison.threshold;
        case 1:  // not equal
            return fabs(x - y) > comparison.threshold;
        case 2:  // less
            return x < y;
        case 3:  // less or equal
            return x <= y;
        case 4:  // greater
            return x > y;
        default:  // greater or equal
            return x >= y;
    }
}

kernel void forward(device const Primary* x [[buffer(0)]],
                    device const Secondary* y [[buffer(1)]],
                    constant Pairing& pairing [[buffer(2)]],
                    constant Comparison& comparison [[buffer(3)]],
                    device Values* result [[buffer(4)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= pairing.count) {
        return;
    }
    Place at = place_in(id, pairing.extent);
    Values a = Values(x[element_of(pairing.first, at)]);
    Values b = Values(y[element_of(pairing.second, at)]);
    result[id] = select(Values(0.0f), Values(1.0f), holds(a, b, comparison));
}
