// Dropout: one thread draws four elements of a mask, or computes one element of the result.
//
//   mask = 1 where a random word of 32 bits is below the threshold, else 0
//   y    = x * scale where the mask is 1, else 0;   dx = g * scale where the same mask is 1, else 0
//
// The random words are those of Philox4x32-10: four words for each counter, without a state.
#include <metal_stdlib>
using namespace metal;

struct Drawing {
    uint elements, first_image, sequence_low, sequence_high, seed_low, seed_high, threshold;
};

uint4 philox(uint4 counter, uint2 key) {
    for (int i = 0; i < 10; ++i) {
        uint4 mixed = {mulhi(0xCD9E8D57u, counter.z) ^ counter.y ^ key.x, 0xCD9E8D57u * counter.z,
                       mulhi(0xD2511F53u, counter.x) ^ counter.w ^ key.y, 0xD2511F53u * counter.x};
        counter = mixed;
        key += uint2(0x9E3779B9u, 0xBB67AE85u);
    }
    return counter;
}

kernel void mask(device uchar *bits, constant Drawing &drawing, uint2 at [[thread_position_in_grid]]) {
    uint block = at.x, image = at.y;
    uint4 words = philox(uint4(drawing.sequence_low, drawing.sequence_high, drawing.first_image + image, block),
                         uint2(drawing.seed_low, drawing.seed_high));
    for (uint k = 0; k < 4 && 4 * block + k < drawing.elements; ++k)
        bits[image * drawing.elements + 4 * block + k] = words[k] < drawing.threshold ? 1 : 0;
}

kernel void apply(device const float *x, device const uchar *bits, device float *y, constant float &scale,
                  uint i [[thread_position_in_grid]]) {
    y[i] = bits[i] != 0 ? x[i] * scale : 0;
}
