// In front of every family. Images are (N, H, W, C), channels fastest; one thread owns one element of the result.

#include <metal_stdlib>
using namespace metal;

#ifndef SPECIALIZED
typedef float Storage;   // what the source image holds: float or half
typedef float Gradient;  // what the source gradient holds
#endif

struct Problem {
    uint count;  // elements of the result; the grid is rounded up to whole threadgroups, and the surplus threads do run
    uint channels;
    uint height;  // of the result
    uint width;
    uint source_height;  // of the image that is gathered from
    uint source_width;
};

// Where the element of a thread is.
struct Place {
    uint image;
    uint row;
    uint column;
    uint channel;
};

Place place_of(uint id, constant Problem& problem) {
    uint pixel = id / problem.channels;
    uint line = pixel / problem.width;
    return {line / problem.height, line % problem.height, pixel % problem.width, id % problem.channels};
}

// Index of a pixel's value in an image of height x width pixels; products may exceed 32 bits.
ulong index_of(uint image, uint height, uint width, int row, int column, uint channels, uint channel) {
    return ((ulong(image) * height + ulong(row)) * width + ulong(column)) * channels + channel;
}

// A sum whose chains of additions stay short, so that its rounding error does too.
struct BlockedSum {
    float total;
    float block;
    uint taken;

    void add(float term) {
        block += term;
        taken += 1;
        if (taken == 1024) {
            total += block;
            block = 0;
            taken = 0;
        }
    }

    float value() {
        return total + block;
    }
};
