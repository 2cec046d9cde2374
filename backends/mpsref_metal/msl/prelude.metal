// Precedes the source of every family. Images are (N, H, W, C), channels fastest.
//
// A thread computes WIDTH neighbouring channels of a pixel of the result, a pack: 4 where all images allow it, else 1.
// `Values` is the type of a pack in registers; `Storage` and `Gradient` are its types in images. `channels` and indices
// count packs. Operators and library functions act on each channel of a pack, and so does `select`.

#include <metal_stdlib>
using namespace metal;

#ifndef Values
constant constexpr uint WIDTH = 1;
#define Values float  // float4 where WIDTH is 4
#define Flags bool    // what a comparison of Values gives
#define Counts uint
#endif

#ifndef TOGETHER
#define TOGETHER 1  // packs of a pixel that a thread computes, in families that have a choice
#endif

#ifndef SPECIALIZED
typedef float Storage;   // what the source image holds: float or half, or float4 or half4
typedef float Gradient;  // what the source gradient holds
typedef uint Index;      // of an element of an image; ulong where an image has more elements than 32 bits count
#endif

// A divisor that is applied by a multiplication, since GPUs have no division of integers. For n < 2^32 - 1,
// n / value = ((n + increment) * multiplier) >> (32 + shift).
struct Divisor {
    uint value;
    uint multiplier;
    uint increment;
    uint shift;
};

uint quotient(uint n, constant Divisor& divisor) {
    return mulhi(n + divisor.increment, divisor.multiplier) >> divisor.shift;
}

uint remainder(uint n, constant Divisor& divisor) {
    return n - quotient(n, divisor) * divisor.value;
}

// The size of an image, as divisors of the index of an element.
struct Extent {
    Divisor height;
    Divisor width;
    Divisor channels;
};

// The sizes of a result and of the image that it is computed from.
struct Shapes {
    uint count;  // packs of the result; the grid is rounded up to whole threadgroups: surplus threads run
    uint channels;
    uint height;  // of the result
    uint width;
    uint source_height;  // of the image that is gathered from
    uint source_width;
    Extent extent;  // of the result; its channels count groups of TOGETHER packs
};

// Where the pack of a thread is.
struct Place {
    uint image;
    uint row;
    uint column;
    uint channel;
};

Place place_in(uint id, uint height, uint width, uint channels) {
    uint pixel = id / channels;
    uint line = pixel / width;
    uint image = line / height;
    return {image, line - image * height, pixel - line * width, id - pixel * channels};
}

Place place_in(uint id, constant Extent& extent) {
    uint pixel = quotient(id, extent.channels);
    uint line = quotient(pixel, extent.width);
    uint image = quotient(line, extent.height);
    return {image, line - image * extent.height.value, pixel - line * extent.width.value,
            id - pixel * extent.channels.value};
}

Place place_of(uint id, constant Shapes& shapes) {
    return place_in(id, shapes.extent);
}

// The first pack of the result that a thread computes; TOGETHER packs are `extent.channels.value` apart.
Index first_pack(uint id, Place at) {
    return Index(id - at.channel) * TOGETHER + at.channel;
}

// Index of a pixel's value in an image of height x width pixels.
Index index_of(uint image, uint height, uint width, int row, int column, uint channels, uint channel) {
    return ((Index(image) * height + Index(row)) * width + Index(column)) * channels + channel;
}

// A sum of blocks of 1024 terms, which limits its rounding error. If SHORT_SUMS is defined, no sum has more terms than
// that.
struct BlockedSum {
    Values total;
    Values block;
    uint taken;

    void add(Values term) {
        block += term;
#ifndef SHORT_SUMS
        taken += 1;
        if (taken == 1024) {
            total += block;
            block = Values(0.0f);
            taken = 0;
        }
#endif
    }

    Values value() {
        return total + block;
    }
};

BlockedSum empty_sum() {
    return {Values(0.0f), Values(0.0f), 0};
}

// The sum and the maximum of the channels of a pack.
float sum_of(float v) {
    return v;
}

float sum_of(float2 v) {
    return v.x + v.y;
}

float sum_of(float4 v) {
    return (v.x + v.y) + (v.z + v.w);
}

float largest_of(float v) {
    return v;
}

float largest_of(float2 v) {
    return max(v.x, v.y);
}

float largest_of(float4 v) {
    return max(max(v.x, v.y), max(v.z, v.w));
}
