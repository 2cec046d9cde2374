// What compiled kernels (entry.h) and, on a processor, the launcher (runtime.c) and Python (launcher.py) agree on.
#pragma once

// The fixed-width types come from <stdint.h> or from prelude.h, whichever is included first.
#define MPSREF_MAX_THREADS 1024
#define MPSREF_MAX_BUFFERS 31
#define MPSREF_SIMD_WIDTH 32
#define MPSREF_SIMD_BYTES 64 // a vector of the widest numbers
#define MPSREF_STACK_BYTES (256 * 1024)

// The threadgroup that is running. Its threads take their turns as start, start + step, ... modulo size.
typedef struct {
    void *const *buffers;
    void *const *locals;                                      // threadgroup parameters, by index
    uint32_t size, index, start, step;                        // threads; the number of the group
    uint32_t origin[3], position[3], extent[3];               // of the group: its first thread, its place, its threads
    uint32_t width[3], grid[3], groups[3];                    // of the launch: of a full group, threads, groups
} mpsref_group;

// The values that the active lanes of a simdgroup brought to a simdgroup function.
typedef struct {
    uint32_t active;
    uint8_t value[MPSREF_SIMD_WIDTH][MPSREF_SIMD_BYTES] __attribute__((aligned(16)));
} mpsref_exchange;

// What a kernel asks of the launcher while it runs. `flags` are those of metal::mem_flags, 0 for a simdgroup function;
// `line` and `column` say where in the MSL source it asks.
#ifdef __cplusplus
extern "C" {
#endif
void mpsref_barrier(uint32_t flags, uint32_t line, uint32_t column);
uint32_t mpsref_lane(void);
const mpsref_exchange *mpsref_exchange_values(const void *value, uint32_t bytes, uint32_t flags, uint32_t line,
                                              uint32_t column);
void mpsref_out_of_bounds(int64_t index, uint64_t length, uint32_t line, uint32_t column);
#ifdef __cplusplus
}
#endif

typedef struct {
    uint8_t *data, *copy; // copy: pages for the second pass
    uint64_t bytes;
    uint32_t writable;
} mpsref_buffer;

typedef struct {
    const mpsref_buffer *buffers;
    void (*run_thread)(const mpsref_group *, uint32_t);
    uint8_t *local;                                 // threadgroup memory
    uint64_t local_bytes, seed;
    uint64_t grid[3]; // threads; groups at the end of a grid that is no multiple of a group have fewer
    uint32_t width[3], groups[3];
    uint32_t buffer_count, check_order;
} mpsref_launch;

enum {
    MPSREF_FINE,
    MPSREF_FAULT,         // buffer, offset, count = signal number, others = 1 for a read, 2 for a write
    MPSREF_GUARD_DAMAGED, // buffer, offset
    MPSREF_DIVERGENCE,    // group, count threads wait at line:column, others at other_line, the rest have returned
    MPSREF_ORDER,         // buffer, offset of the first byte that depends on the order
    MPSREF_ARRAY,         // offset = index, count = length, line, column
    MPSREF_MEMORY,
    MPSREF_UNEXPECTED     // a barrier in a kernel that source.py took for one without
};

typedef struct {
    int64_t offset;
    uint32_t kind;
    int32_t buffer;
    uint32_t group, count, line, column, others, other_line;
} mpsref_report;
