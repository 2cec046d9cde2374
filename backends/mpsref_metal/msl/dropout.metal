// Dropout: masks from Philox4x32-10, and images scaled or zeroed by a mask.

#ifndef SPECIALIZED
#define Mask uchar  // uchar4 where WIDTH is 4, unless all channels share a value
#endif

struct Drawing {
    uint count;     // blocks of four mask elements, of all images
    uint blocks;    // of one image
    uint elements;  // of one image's mask, low 32 bits
    uint elements_high;
    uint first;  // index of the first image
    uint sequence_low;
    uint sequence_high;
    uint seed_low;
    uint seed_high;
    uint threshold;  // a word below it keeps the element
};

uint4 philox(uint4 counter, uint2 key) {
    for (int i = 0; i < 10; ++i) {
        uint low0 = 0xD2511F53u * counter.x, high0 = mulhi(0xD2511F53u, counter.x);
        uint low1 = 0xCD9E8D57u * counter.z, high1 = mulhi(0xCD9E8D57u, counter.z);
        counter = uint4{high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0};
        key = uint2{key.x + 0x9E3779B9u, key.y + 0xBB67AE85u};
    }
    return counter;
}

// One thread computes a block.
kernel void mask(constant Drawing& drawing [[buffer(0)]],
                 device uchar* bits [[buffer(1)]],
                 uint id [[thread_position_in_grid]]) {
    if (id >= drawing.count) {
        return;
    }
    uint image = id / drawing.blocks;
    uint block = id % drawing.blocks;
    uint4 words = philox(uint4{drawing.sequence_low, drawing.sequence_high, drawing.first + image, block},
                         uint2{drawing.seed_low, drawing.seed_high});
    ulong elements = (ulong(drawing.elements_high) << 32) + drawing.elements;
    ulong at = ulong(block) * 4;
    device uchar* line = bits + elements * image;
    if (elements % 4 == 0) {
        *(device uchar4*)(line + at) = uchar4(select(uint4(0u), uint4(1u), words < drawing.threshold));
        return;
    }
    for (int k = 0; k < 4 && at + k < elements; ++k) {
        line[at + k] = words[k] < drawing.threshold ? 1 : 0;
    }
}

// The size of the images, and the distances of images, rows, pixels and channels in the mask: 0 for a shared value.
struct Masked {
    uint count;
    uint height;
    uint width;
    uint channels;
    uint of_image;
    uint of_row;
    uint of_pixel;
    uint of_channel;
    float scale;
};

// y = x * scale where the mask is 1, else 0; dx from g in the same way. A mask that all channels share has one value
// for a pixel.
kernel void apply(device const Storage* x [[buffer(0)]],
                  device const Mask* mask [[buffer(1)]],
                  constant Masked& masked [[buffer(2)]],
                  device Values* y [[buffer(3)]],
                  uint id [[thread_position_in_grid]]) {
    if (id >= masked.count) {
        return;
    }
    Place at = place_in(id, masked.height, masked.width, masked.channels);
    Index bit = Index(at.image) * masked.of_image + Index(at.row) * masked.of_row +
                Index(at.column) * masked.of_pixel + Index(at.channel) * masked.of_channel;
    Flags kept = Counts(mask[bit]) != Counts(0u);
    y[id] = select(Values(0.0f), Values(x[id]) * masked.scale, kept);
}
