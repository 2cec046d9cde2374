// Concatenation: each source is copied to its channels of the result by a launch of its own.

// The channels of the result that a launch fills.
struct Segment {
    uint count;     // threads
    Divisor channels;  // packs of the source
    uint joined;    // packs of a pixel of the result
    uint first;     // pack of the result where the source begins
};

Index place_in_result(uint id, constant Segment& segment) {
    uint pixel = quotient(id, segment.channels);
    return Index(pixel) * segment.joined + segment.first + (id - pixel * segment.channels.value);
}

kernel void copy(device const Storage* source [[buffer(0)]],
                 constant Segment& segment [[buffer(1)]],
                 device Values* result [[buffer(2)]],
                 uint id [[thread_position_in_grid]]) {
    if (id < segment.count) {
        result[place_in_result(id, segment)] = Values(source[id]);
    }
}

// Channels between the sources.
kernel void zeros(constant Segment& segment [[buffer(0)]],
                  device Values* result [[buffer(1)]],
                  uint id [[thread_position_in_grid]]) {
    if (id < segment.count) {
        result[place_in_result(id, segment)] = Values(0.0f);
    }
}
