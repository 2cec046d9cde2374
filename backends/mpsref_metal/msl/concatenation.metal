// Concatenation: each source is copied to its channels of the result by a launch of its own.

struct Part {
    uint count;     // threads
    Divisor channels;  // packs of the source
    uint joined;    // packs of the result
    uint first;     // pack of the result
};

Index place_in_result(uint id, constant Part& part) {
    uint pixel = quotient(id, part.channels);
    return Index(pixel) * part.joined + part.first + (id - pixel * part.channels.value);
}

kernel void copy(device const Storage* source [[buffer(0)]],
                 constant Part& part [[buffer(1)]],
                 device Values* result [[buffer(2)]],
                 uint id [[thread_position_in_grid]]) {
    if (id < part.count) {
        result[place_in_result(id, part)] = Values(source[id]);
    }
}

// Channels between the sources.
kernel void zeros(constant Part& part [[buffer(0)]],
                  device Values* result [[buffer(1)]],
                  uint id [[thread_position_in_grid]]) {
    if (id < part.count) {
        result[place_in_result(id, part)] = Values(0.0f);
    }
}
