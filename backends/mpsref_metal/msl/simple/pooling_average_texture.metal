// The gradient of average pooling on the textures of MPS images: one thread computes one texel, four channels of a pixel.
//
//   dx[j, k] = sum over the windows (a, b) that contain pixel (j, k) of g[a, b] / (N(a) * N(b))
//
// Slice n * ceil(C / 4) + c / 4 of a texture has channel c of image n: both textures have the same slices.
#include <metal_stdlib>
using namespace metal;

struct Axis {
    int length, windows, taps, stride, offset;
    int shrinks, zero_pad;  // edge mode clamp: N counts the pixels inside the image and a zero pad around it
};

int first(constant Axis &axis, int i) { return axis.offset + i * axis.stride - axis.taps / 2; }

int last(constant Axis &axis, int i) { return first(axis, i) + axis.taps - 1; }

bool contains(constant Axis &axis, int i, int j) { return first(axis, i) <= j && j <= last(axis, i); }

int N(constant Axis &axis, int i) {
    if (!axis.shrinks) return axis.taps;
    return max(0, min(last(axis, i), axis.length - 1 + axis.zero_pad) - max(first(axis, i), -axis.zero_pad) + 1);
}

kernel void gradient(texture2d_array<half> g [[texture(0)]], texture2d_array<half, access::write> dx [[texture(1)]],
                     constant Axis &rows, constant Axis &columns, uint3 at [[thread_position_in_grid]]) {
    float4 sum = 0;
    for (int a = 0; a < rows.windows; ++a)
        for (int b = 0; b < columns.windows; ++b)
            if (contains(rows, a, at.y) && contains(columns, b, at.x))
                sum += float4(g.read(uint2(b, a), at.z)) / float(N(rows, a) * N(columns, b));
    dx.write(half4(sum), at.xy, at.z);
}
