// Two operands of different sizes, combined element by element. Along an axis, result element i reads operand element
// offset + stride * i; a stride is 0 or 1. An operand with the stride 0 along the channels has one value for all WIDTH
// channels of a pack.

#ifndef SPECIALIZED
#define Primary float    // what x holds: float or half, or float4 or half4 if it has the stride 1 along the channels
#define Secondary float  // what y holds
#endif

struct Walk {
    uint height;  // of the operand
    uint width;
    uint channels;
    uint y;  // offsets
    uint x;
    uint channel;
    uint stride_y;
    uint stride_x;
    uint stride_channel;
};

// The size of the result, and how each operand is read.
struct Pairing {
    uint count;  // threads that compute something
    uint height;
    uint width;
    uint channels;
    Walk first;
    Walk second;
    Extent extent;  // of the threads
};

// Index of an operand's element for the result's element at a place.
Index element_of(constant Walk& walk, Place at) {
    int row = int(walk.y + walk.stride_y * at.row);
    int column = int(walk.x + walk.stride_x * at.column);
    uint channel = walk.channel + walk.stride_channel * at.channel;
    return index_of(at.image, walk.height, walk.width, row, column, walk.channels, channel);
}
