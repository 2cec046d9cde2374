// Concatenation: all sources lie one after the other in one buffer.

// What a channel of the result reads: channel `channel` of a source with `channels` channels that begins at `start`.
// Where a source is padded, `channel` is -1.
struct Part {
    long start;
    int channels;
    int channel;
};

struct Joined {
    uint count;
    uint channels;
};

kernel void concatenate(device const Storage* sources [[buffer(0)]],
                        device const Part* parts [[buffer(1)]],
                        constant Joined& joined [[buffer(2)]],
                        device float* result [[buffer(3)]],
                        uint id [[thread_position_in_grid]]) {
    if (id >= joined.count) {
        return;
    }
    Part part = parts[id % joined.channels];
    if (part.channel < 0) {
        result[id] = 0;
        return;
    }
    result[id] = float(sources[part.start + long(id / joined.channels) * part.channels + part.channel]);
}
