// Reshape in the element order in which x varies fastest, then y, then the channel.

struct ReshapeSizes {
    uint count;
    uint height;  // of the result
    uint width;
    uint channels;
    uint source_pixels;
    uint source_channels;
};

kernel void reshape(device const Storage* source [[buffer(0)]],
                    constant ReshapeSizes& sizes [[buffer(1)]],
                    device float* result [[buffer(2)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= sizes.count) {
        return;
    }
    uint pixels = sizes.height * sizes.width;
    uint elements = pixels * sizes.channels;
    uint image = id / elements;
    uint element = id % sizes.channels * pixels + id % elements / sizes.channels;  // in that order
    uint pixel = element % sizes.source_pixels;
    uint channel = element / sizes.source_pixels;
    result[id] = float(source[ulong(image) * elements + ulong(pixel) * sizes.source_channels + channel]);
}
