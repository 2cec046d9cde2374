// The product of two matrices in tiles, for convolution: each threadgroup computes TILE_M x TILE_N elements of the
// result from tiles of both operands in threadgroup memory, and each of its threads ROWS x 8 of them in registers.
//
// There are two buffers for the tiles of the operands: while threads multiply from one, they fill the other with the
// tiles of the next TILE_K terms, which they have read before. Tiles of 128 x 128 take 16.5 KB.

#ifndef SPECIALIZED
constant constexpr uint TILE_M = 32;  // rows and columns of the result, multiples of 8
constant constexpr uint TILE_N = 32;
constant constexpr uint ROWS = 8;  // of a thread: 8 or 16
#define Others float  // the second operand in registers: float4 where its width is 4, as Values of the first
#define Other float   // what it is stored as
#endif

constant constexpr uint TILE_K = 8;      // terms of a tile
constant constexpr uint LONGEST = 1024;  // terms added in sequence, before their sum is added to the result
constant constexpr uint THREADS = TILE_M / ROWS * (TILE_N / 8);
constant constexpr uint M_ROW = TILE_M + 4;  // distance of rows in threadgroup memory, which avoids bank conflicts
constant constexpr uint N_ROW = TILE_N + 4;
constant constexpr uint OTHER_WIDTH = sizeof(Others) / sizeof(float);

constant constexpr uint QUADS = ROWS / 4;

// Sums of a thread: rows 4 * down ... + 3 of each of QUADS parts of the tile, columns 4 * along ... + 3 of both halves.
struct Sums {
    float4 of[ROWS][2];
};

struct Position {
    uint down;
    uint along;
};

// The positions of a SIMD group are 4 x 8 or 8 x 4, so that its threads read few different values.
Position position_of(uint member) {
    constexpr uint lanes = TILE_N < 64 ? TILE_N / 8 : 8;  // side by side
    constexpr uint across = TILE_N / 8 / lanes;           // SIMD groups side by side
    uint lane = member % 32;
    uint simd_group = member / 32;
    return {simd_group / across * (32 / lanes) + lane / (2 * lanes) * 2 + lane % 2,
            simd_group % across * lanes + lane / 2 % lanes};
}

void clear(thread Sums& sums) {
#pragma clang loop unroll(full)
    for (uint i = 0; i < ROWS; ++i) {
        sums.of[i][0] = float4(0.0f);
        sums.of[i][1] = float4(0.0f);
    }
}

void multiply(threadgroup const float* left, threadgroup const float* right, Position at, thread Sums& sums) {
#pragma clang loop unroll(full)
    for (uint k = 0; k < TILE_K; ++k) {
        float4 a = *(threadgroup const float4*)(right + k * N_ROW + 4 * at.along);
        float4 b = *(threadgroup const float4*)(right + k * N_ROW + TILE_N / 2 + 4 * at.along);
#pragma clang loop unroll(full)
        for (uint quad = 0; quad < QUADS; ++quad) {
            float4 rows = *(threadgroup const float4*)(left + k * M_ROW + quad * (TILE_M / QUADS) + 4 * at.down);
#pragma clang loop unroll(full)
            for (uint i = 0; i < 4; ++i) {
                sums.of[4 * quad + i][0] += rows[i] * a;
                sums.of[4 * quad + i][1] += rows[i] * b;
            }
        }
    }
}

// The row of the tile in which a thread has its row i, and the column of its column j.
uint row_of(uint i, Position at) {
    return i / 4 * (TILE_M / QUADS) + 4 * at.down + i % 4;
}

uint column_of(uint j, Position at) {
    return j / 4 * (TILE_N / 2) + 4 * at.along + j % 4;
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

// Store four sums of a row, or add them to the sums of earlier terms. Only the first `count` columns exist.
void store(device float* at, float4 sums, uint count, bool is_aligned, bool is_first) {
    if (is_aligned) {
        device float4* all = (device float4*)at;
        *all = is_first ? sums : *all + sums;
        return;
    }
#pragma clang loop unroll(full)
    for (uint j = 0; j < 4; ++j) {
        if (j < count) {
            at[j] = is_first ? sums[j] : at[j] + sums[j];
        }
    }
}
