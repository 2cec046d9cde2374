// The product of two matrices in tiles, for convolution: each threadgroup computes TILE_M x TILE_N elements of the result
// from tiles of both operands in threadgroup memory, and each of its threads 8 x 8 of them in registers.
//
// There are two buffers for the tiles of the operands: while threads multiply from one, the other is filled with the
// tiles of the next TILE_K terms, which they have read from memory before. 16 KB for tiles of 128 x 128.

#ifndef SPECIALIZED
constant constexpr uint TILE_M = 32;  // rows and columns of the result, multiples of 8
constant constexpr uint TILE_N = 32;
#define Others float  // the second operand in registers: float4 where its width is 4, as Values of the first
#define Other float   // what it is stored as
constant bool ALIGNED = false;  // whether rows of the result are multiples of four values
#endif

constant constexpr uint TILE_K = 8;      // terms of a tile
constant constexpr uint LONGEST = 1024;  // terms in sequence; then they are added to the result
constant constexpr uint THREADS = TILE_M / 8 * (TILE_N / 8);
constant constexpr uint M_ROW = TILE_M + 4;  // rows in threadgroup memory are this far apart, for different banks
constant constexpr uint N_ROW = TILE_N + 4;
constant constexpr uint OTHER_WIDTH = sizeof(Others) / sizeof(float);

// Sums of a thread: rows 4 * down ... + 3 and TILE_M / 2 + 4 * down ... + 3 of the tile, columns in the same way.
struct Sums {
    float4 of[8][2];
};

void clear(thread Sums& sums) {
    for (uint i = 0; i < 8; ++i) {
        sums.of[i][0] = float4(0.0f);
        sums.of[i][1] = float4(0.0f);
    }
}

void multiply(threadgroup const float* left, threadgroup const float* right, uint down, uint along,
              thread Sums& sums) {
    for (uint k = 0; k < TILE_K; ++k) {
        float4 a = *(threadgroup const float4*)(left + k * M_ROW + 4 * down);
        float4 b = *(threadgroup const float4*)(left + k * M_ROW + TILE_M / 2 + 4 * down);
        float4 c = *(threadgroup const float4*)(right + k * N_ROW + 4 * along);
        float4 d = *(threadgroup const float4*)(right + k * N_ROW + TILE_N / 2 + 4 * along);
        for (uint i = 0; i < 4; ++i) {
            sums.of[i][0] += a[i] * c;
            sums.of[i][1] += a[i] * d;
            sums.of[4 + i][0] += b[i] * c;
            sums.of[4 + i][1] += b[i] * d;
        }
    }
}

// The row or column of the tile that has number i of the eight of a thread.
uint place_in_tile(uint i, uint position, uint size) {
    return i < 4 ? 4 * position + i : size / 2 + 4 * position + i - 4;
}

// Values of successive terms go to successive rows of a tile, those of successive columns to one row.
void put_down(threadgroup float* at, uint row, float value) {
    at[0] = value;
}

void put_down(threadgroup float* at, uint row, float4 value) {
    at[0] = value.x;
    at[row] = value.y;
    at[2 * row] = value.z;
    at[3 * row] = value.w;
}

void put_along(threadgroup float* at, float value) {
    at[0] = value;
}

void put_along(threadgroup float* at, float4 value) {
    *(threadgroup float4*)at = value;
}

// Store four sums of a row, or add them to those of earlier terms; only the first `count` columns exist.
void store(device float* at, float4 sums, uint count, bool first) {
    if (ALIGNED) {
        device float4* all = (device float4*)at;
        *all = first ? sums : *all + sums;
        return;
    }
    for (uint j = 0; j < 4; ++j) {
        if (j < count) {
            at[j] = first ? sums[j] : at[j] + sums[j];
        }
    }
}
