// What compiled kernels (entry.h) and, on a processor, the launcher (runtime.c) and Python (launcher.py) agree on.
//
// A library has one kernel: `void anymetal_thread(const anymetal_group *g, uint32_t t)` runs thread t of a threadgroup. Two
// arrays describe its parameters that are memory: `const uint32_t anymetal_about[]` has the number of its elements, then
// for each the bytes and the alignment of what it points to, whether that can be written, whether it is a reference, the
// numbers there: a letter of NumPy (b, i, u, f, or V for bfloat) * 256 + their bytes, or 0, and how many buffers it is;
// `const uint32_t anymetal_bindings[]` has for each the index and whether it exists; `const uint32_t anymetal_members[]` has
// for each member of a struct with pointers its offset, its length, whether it is a pointer, and the same numbers.
// Static threadgroup memory is a section, as are the threads of a threadgroup if the kernel names them.
#pragma once

// The fixed-width types come from <stdint.h> or from prelude.h, whichever is included first.
#define ANYMETAL_MAX_THREADS 1024
#define ANYMETAL_MAX_BUFFERS 160 // of a launch: the 31 of a kernel, a table, 128 textures, and what pointers in buffers point to
#define ANYMETAL_MAX_LOCALS 31
#define ANYMETAL_SIMD_WIDTH 32
#define ANYMETAL_SIMD_BYTES 64
#define ANYMETAL_STACK_BYTES (256 * 1024)

#ifndef ANYMETAL_UNTOLD // prelude.h
#define ANYMETAL_UNTOLD
#endif

// The threadgroup that is running.
typedef struct {
    void *const ANYMETAL_UNTOLD *buffers, *const ANYMETAL_UNTOLD *locals; // locals: the threadgroup memory of parameters
    uint32_t size, index;                      // threads; the number of the group
    uint32_t origin[3], position[3], extent[3]; // of the group: its first thread, its place, its threads
    uint32_t width[3], grid[3], groups[3];     // of the launch: threads of a full group, all threads, groups
} anymetal_group;

// The values that the active lanes of a simdgroup brought to a simdgroup function.
typedef struct {
    uint32_t active;
    uint8_t value[ANYMETAL_SIMD_WIDTH + 1][ANYMETAL_SIMD_BYTES] __attribute__((aligned(64))); // the last is undefined
} anymetal_exchange;

// A place in the MSL source, or in a file that it includes.
typedef struct {
    const char *file;
    uint32_t line, column;
} anymetal_site;

// A value of a message: a string, or a number as C passes one to printf.
enum { ANYMETAL_MAX_ITEMS = 32 };
typedef struct {
    union { double number; int64_t integer; const char *text; };
    uint32_t kind; // 'f', 'd' or 's'
} anymetal_item;

// What a texture is, in the table of a launch, a buffer behind the others; entry n has the state of sampler n, too. A
// width of 0 is a null texture. `format`, `fields`: texture.h. Of a cube `count` has six slices a cube, and of a
// multisampled texture a slice a sample.
typedef struct {
    uint8_t *data;
    uint32_t width, height, depth, count;
    uint32_t levels, format, size, index; // size: bytes of a texel; index: of the parameter
    uint32_t samples, flags;
    uint64_t fields, sampler;
} anymetal_texture;
// Watched: somebody writes the memory, or it is undefined. The second is of floats written as 16 bits.
enum { ANYMETAL_IS_WATCHED = 1, ANYMETAL_ROUNDS_TO_NEAREST = 2 };

// What a kernel can ask of the launcher while it runs. `here` is where it asks, `flags` are those of the barrier;
// ANYMETAL_IS_BARRIER tells that of a simdgroup from a function of its lanes. A kernel synchronizes if its library needs
// one of the first two. With checks ANYMETAL_IS_UNIFORM says that the active lanes of the simdgroup, or of the quadgroup,
// must have equal flags: the argument of the function is in the bits from 8 on.
#ifdef __cplusplus
extern "C" {
#endif
enum { ANYMETAL_IS_BARRIER = 8, ANYMETAL_IS_UNIFORM = 16, ANYMETAL_IS_QUAD = 32 };
void anymetal_barrier(uint32_t flags, anymetal_site here);
const anymetal_exchange *anymetal_exchange_values(const void *value, uint32_t bytes, uint32_t flags, anymetal_site here);
uint32_t anymetal_thread_index(void); // in its threadgroup
void anymetal_log(uint32_t level, const char *format, const anymetal_item *items, uint32_t count); // prints a message
// What a kernel compiled with checks (ANYMETAL_CHECKED) tells of its own accord: an atomic access, a fence, and a value
// that it takes of a lane that brought none.
// It does so before the access: `value` is what a store writes, or what an exchange expects. Returns whether a weak
// exchange has to fail.
enum { ANYMETAL_LOAD, ANYMETAL_CHANGE, ANYMETAL_STORE, ANYMETAL_COMPARE };
uint32_t anymetal_atomic_access(const volatile void *address, uint32_t bytes, uint32_t what, uint32_t order, const void *value);
void anymetal_fence(uint32_t order);
// Returns where the value is: the compiler drops a call whose result it does not need, since the value is not used.
__attribute__((const)) uint32_t
anymetal_missing_lane(uint32_t lane, uint32_t slot, const char *file, uint32_t line, uint32_t column);
enum { ANYMETAL_OF_NUMBERS = 1, ANYMETAL_OF_CLASS, ANYMETAL_OF_VECTORS = 8 }; // of vectors: and the bytes of a component
void anymetal_unset(volatile void *variable, uint64_t bytes, uint32_t what); // of a thread: nothing wrote it yet; 0: it ends
void anymetal_unset_component(void); // which is used
// A variable of a thread with an address that the kernel keeps, and, by the compiler, that its block begins or ends.
void anymetal_life(volatile void *variable, uint64_t bytes, const char *name, anymetal_site here);
void anymetal_lives(volatile void *variable, uint32_t is_begin);
void anymetal_argument(const char *call); // of the library, whose result is undefined
void anymetal_out_of_bounds(int64_t index, uint64_t length, anymetal_site here);
// Of a texture: an access of a texel, of at most 16 bytes; a use that is undefined or has no effect, at a coordinate; from
// now on the thread sees what it wrote. `back` is the address of the code behind the access.
void anymetal_texel(const void *address, uint32_t bytes, uint32_t is_write, void *back);
void anymetal_texel_atomic(const void *address, uint32_t bytes, uint32_t is_write, void *back);
void anymetal_texel_fence(void);
void anymetal_half_index(float value); // a half that becomes a component of an integer vector
void anymetal_texture_fault(uint32_t kind, const ANYMETAL_UNTOLD anymetal_texture *texture, uint32_t is_write, uint32_t x,
                            uint32_t y, uint32_t z, uint32_t slice, uint32_t lod, void *back);
#ifdef __cplusplus
}
#endif

typedef struct {
    uint8_t *data, *copy; // data is NULL if nothing is bound; copy: pages for the second pass
    uint64_t bytes, offset; // offset: where in it the kernel's pointer points
    uint64_t written, covered; // results of checks: the bytes that the kernel wrote; those from `offset` on without a gap
    uint32_t writable, undefined, unit; // undefined: a read before a write is an error; unit: bytes of its numbers
    int32_t file; // below 0: none; else the memory is that of a sparse file, which checks use in place
    uint32_t is_read; // a result of checks: whether the kernel read any of it
    uint32_t is_texture; // no result
    uint64_t unread;  // and, if they count it, the bytes that it neither read nor wrote
} anymetal_buffer;

// A pointer in a buffer: `offset` bytes from its start is the address `at` bytes from the start of buffer `target`.
typedef struct {
    uint64_t offset, at;
    uint32_t buffer, target;
} anymetal_link;

// Threadgroup memory of a parameter, in pages of its own.
typedef struct {
    uint8_t *pages;
    uint64_t bytes; // 0: the kernel has no such parameter
    uint64_t unread; // as of a variable
} anymetal_local_memory;

// A threadgroup variable: where it is in the static threadgroup memory.
typedef struct {
    uint32_t at, bytes;
    uint64_t unread; // a result, if it is counted: bytes that were written last, and not read after it, of all threadgroups
} anymetal_variable;

typedef enum {
    ANYMETAL_RACE = 1,
    ANYMETAL_LOCKSTEP,    // a race of lanes of one simdgroup
    ANYMETAL_FENCE,       // a barrier lies between that does not order this memory
    ANYMETAL_MIXED,       // a race of an atomic and a plain access
    ANYMETAL_SAME_VALUE,  // a race of a write that changes nothing
    ANYMETAL_UNINITIALIZED,
    ANYMETAL_OUTSIDE,     // out of bounds
    ANYMETAL_READ_ONLY,
    ANYMETAL_MISSING_LANE, // offset: the lane
    ANYMETAL_WAITS,        // a loop of atomic loads that no other thread can end
    ANYMETAL_MANY_BARRIERS,
    ANYMETAL_PRIVATE,      // outside of a private array
    ANYMETAL_MISALIGNED, ANYMETAL_OVERFLOW, ANYMETAL_TRUNCATION, ANYMETAL_SHIFT, ANYMETAL_FLOAT_CAST, ANYMETAL_DIVISION,
    ANYMETAL_LANES_DIVERGED, // offset: the lanes that wait at a barrier of a simdgroup, bytes: its lanes
    ANYMETAL_NOT_UNIFORM,    // an argument that all lanes must share; offset: that of the thread, count of lanes: bytes
    ANYMETAL_WEAK_EXCHANGE,  // its failure changes the result; offset: the first byte that differs
    // Of an interleaving of atomic operations (trial.h); `load` is the place of a load of the same thread before.
    ANYMETAL_LOST_UPDATE,    // values: what was loaded, what is lost, what is stored
    ANYMETAL_ABA,            // values: of the exchange, and of what was read between, then and now
    ANYMETAL_CHECK_THEN_ACT, // two threads act after loads of one value
    ANYMETAL_RELIES_ON,      // the end of a wait; values: 0, 1, 2 for a lane, another simdgroup, another threadgroup
    ANYMETAL_SHIFT_BASE,   // ANYMETAL_SHIFT: by `offset` bits; this one: of a negative number, or of bits out of one
    ANYMETAL_ARGUMENT,     // a call of the library, `type`, whose result is undefined
    ANYMETAL_ENDED,        // a variable whose block has ended: `type` is its name, `barrier` where it is declared
    ANYMETAL_TEXEL,          // outside of a texture: offset = x + y * 2^32, other_thread = z, other_group = slice, barrier_flags = level
    ANYMETAL_UNFENCED, ANYMETAL_NO_COORDINATE, ANYMETAL_NO_FILTER, ANYMETAL_HALF_INDEX, ANYMETAL_NO_ATOMIC
} anymetal_kind;

// What the checks found. `place` and `other` are addresses of code behind the two accesses, or 0 where the line is known.
typedef struct {
    anymetal_site at;   // where the compiler or the kernel told it
    const char *type; // the compiler's name
    uint64_t place, other;
    int64_t offset;          // in the buffer, of the access; or a value
    uint32_t kind, count, bytes;
    int32_t buffer; // from ANYMETAL_MAX_BUFFERS on: threadgroup memory of a parameter; below 0: none, variables
    uint32_t is_write, was_write, group, other_group, thread_index, other_thread;
    anymetal_site barrier; uint32_t barrier_flags; // the last barrier, for a fence that is too weak
    uint32_t schedule; // the number of the interleaving in which it was found; 0: in that of all launches
    uint64_t load, values[3];
} anymetal_finding;

enum { ANYMETAL_NO_BUFFER = -1, ANYMETAL_VARIABLES = -2, ANYMETAL_MAX_FINDINGS = 64 };

typedef struct {
    anymetal_finding *findings; // of ANYMETAL_MAX_FINDINGS
    anymetal_variable *variables; // in the order of their places
    uint64_t code, code_bytes; // where the library lies
    uint8_t *reached; // the blocks of code that ran
    uint64_t block_count;
    uint32_t variable_count, count, has_atomics; // results: the number of findings, whether there were atomic writes
    uint32_t counts_unread;           // whether it is counted what nothing reads
    uint32_t trials, schedule, tried; // interleavings to try; the only one, or 0; a result: how many ran
} anymetal_checks;

typedef struct {
    anymetal_buffer *buffers;
    anymetal_local_memory *locals;
    const anymetal_link *links;
    anymetal_checks *checks; // NULL: none
    void (*run_thread)(const anymetal_group *, uint32_t);
    uint8_t *local; // static threadgroup memory
    uint64_t local_bytes, seed;
    uint64_t nanoseconds; // limit of processor time
    uint64_t grid[3]; // threads; groups at the end of a grid that is no multiple of a group have fewer
    uint32_t width[3], groups[3];
    uint32_t buffer_count, local_count, link_count;
    uint32_t check_order, synchronizes, flush_denormals;
    uint32_t has_atomics, workers, spreads_at_once; // processes for its threadgroups: from the first one on, or once it is long
} anymetal_launch;

enum {
    ANYMETAL_FINE,
    ANYMETAL_FAULT,         // buffer, offset, count = signal number, others = 1 for a read, 2 for a write; of no buffer
                          // offset = 1: misaligned, 2: at the end of the stack
    ANYMETAL_GUARD_DAMAGED, // buffer, offset
    ANYMETAL_DIVERGENCE,    // group, count threads wait at `at`, others at `other`, the rest have returned
    ANYMETAL_ORDER,         // buffer, offset of the first byte that depends on the order; others = 1 if the time or the
                          // memory did not suffice to check the opposite order
    ANYMETAL_ARRAY,         // offset = index, count = length, at
    ANYMETAL_MEMORY,
    ANYMETAL_STOPPED,       // count = signal number (limit of time, interrupt), group, at: the last barrier or none
    ANYMETAL_NO_TIMER,
    ANYMETAL_FOUND // a finding of the checks that ends the launch
};

typedef struct {
    int64_t offset;
    uint32_t kind;
    int32_t buffer; // from ANYMETAL_MAX_BUFFERS on: threadgroup memory of a parameter
    uint32_t group, count, others;
    anymetal_site at, other;
    uint64_t trace[8]; // with checks, where the thread was: offsets of return addresses in the kernel, innermost first
    uint32_t workers; // processes that ran threadgroups of the last pass, or 0
    uint32_t schedule; // as of a finding
} anymetal_report;
