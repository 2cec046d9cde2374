// Checks of memory accesses. The compiler's thread sanitizer is the instrumentation only: it calls a function
// (checked.h) before each access, and these keep two records for each unit of memory: its last writer and its readers
// since. An access that is not ordered after what they hold is a race.
//
// What orders two threads is a barrier with the flag of the memory: of a threadgroup between all its threads, of a
// simdgroup between its lanes. Each simdgroup has a clock, which its barriers advance, and records carry it; the clock
// that a simdgroup had at the last barrier of a kind says which of its accesses are ordered before what follows. Nothing
// orders two threadgroups of a launch but acquire and release.
#pragma once

// Buffers and the threadgroup memory of parameters lie in slots of an arena that are so large that a 32-bit index, at
// most times the size of a float4, stays in its slot: an address belongs to the buffer that the kernel computed it from.
// Where the address space is small, slots are smaller.
enum { MOST_SLOT_BITS = 36, LEAST_SLOT_BITS = 29 };
enum { VARIABLES = SLOTS, REGIONS }; // VARIABLES: a region that lies elsewhere

// Who accessed: 20 bits of place, 10 of thread, 17 of clock, 13 of threadgroup, and these. Never 0, as clocks are not.
// Readers, or atomic writers: there are other lanes, other simdgroups. A plain writer, in the place of readers.
enum { ATOMIC = 1, LANES = 2, SIMDGROUPS = 4, WRITTEN = 8 };
typedef uint64_t record;
#define MOST_CLOCK 0x1ffffu
#define MOST_GROUP 0x1fffu

static inline uint32_t flags_of(record q) { return q & 15; }
static inline uint32_t group_of(record q) { return q >> 4 & MOST_GROUP; }
static inline uint32_t clock_of(record q) { return q >> 17 & MOST_CLOCK; }
static inline uint32_t thread_of(record q) { return q >> 34 & 1023; }
static inline uint64_t place_of(record q) { return q >> 44; }
// Of one thread (with the same clock).
#define THREAD_BITS (UINT64_C(1023) << 34 | (uint64_t)MOST_GROUP << 4)
#define CLOCK_BITS ((uint64_t)MOST_CLOCK << 17)
static inline int is_same(record q, record me) { return !((q ^ me) & THREAD_BITS); }

enum { DEVICE_MEMORY, LOCAL_MEMORY, TEXTURE_MEMORY, SPACES }; // the space of a region: of a threadgroup it is local

// A unit has 4, 2 or 1 bytes: as few as the smallest access so far. The records of readers cost memory once there are
// any (is_read).
typedef struct {
    uint8_t *data;
    uint64_t bytes, written;
    record *writers, *readers;
    uint32_t unit_bits, space, is_writable, is_undefined, is_read, is_result;
} region;

typedef struct {
    bounds bounds;
    uint8_t *arena;
    const uint8_t *stack; // of the thread that runs
    uint8_t *unset; // for each byte of the stacks whether it is of an array that nothing wrote there
    uint64_t code; // where the library lies
    record me;     // of the thread that runs, without a place
    region regions[REGIONS];
    uint32_t clock[32]; // of the simdgroups
    uint32_t met[32], simd_met[32]; // clocks at their last barriers, and at those that order ...
    uint32_t group_order[SPACES][32], simd_order[SPACES][32]; // a memory
    uint32_t variable; // the last variable that was found
    uint32_t group, has_acquired, is_shared; // has_acquired: this threadgroup; is_shared: device memory had atomics
    struct { anymetal_site at; uint32_t flags; } barrier[32]; // the last ones
    struct { // a conflict of a write whose effect is not known yet
        const uint8_t *at;
        uint8_t before[16];
        anymetal_finding found; // of 0 bytes: none
    } pending;
    struct { // a read of a vector that nothing wrote, which may belong to a store of one component, or to a copy
        const uint8_t *at, *copies[4];
        uint8_t before[16];
        uint32_t is_stored, what, copy_count;
        uint8_t unset[16];
        anymetal_finding found; // of 0 bytes: none
    } vector;
    struct { uint64_t at; uint32_t bytes; const char *name; anymetal_site here; } lives[64]; // see anymetal_life; at: in a stack
    uint32_t life_count, has_ended; // has_ended: any of these
    const volatile void *polled; // by atomic loads in a row
    uint64_t polls;
    // Of atomic operations: their number, whether a weak exchange is among them, and whether a thread uses a value that
    // another one may change at any time.
    uint32_t operations, has_exchange, is_contended;
    uint32_t accesses; // that need no record
    uint32_t has_unset, near_used; // has_unset: whether a thread had an array that nothing wrote
    record near[512]; // for the first small regions, without a system call
    uint32_t released_groups; // of the last member; what lies behind them is zero
    uint32_t released[MOST_GROUP + 1][32]; // for each simdgroup of a threadgroup the clock before which all is released
} shadow;

// Address space, which is given back after a launch: it would count for the limits of child processes.
static uint32_t slot_bits; // 0: there is too little

static uint64_t arena_bytes(void) { return slot_bits ? (uint64_t)SLOTS << slot_bits : 0; }

static uint8_t *arena_map(void) {
    uint8_t *arena = mmap(NULL, arena_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    return arena == MAP_FAILED ? NULL : arena;
}

static int arena_open(shadow *s) {
    s->arena = arena_map();
    s->bounds.arena = (uint64_t)s->arena, s->bounds.slot_bits = slot_bits;
    return s->arena != NULL;
}

// Chooses the size of slots for all launches, and returns the address space that they take.
uint64_t anymetal_arena_choose(void) {
    for (slot_bits = MOST_SLOT_BITS; slot_bits >= LEAST_SLOT_BITS; slot_bits--) {
        uint8_t *trial = arena_map();
        if (!trial) continue;
        munmap(trial, arena_bytes());
        return arena_bytes();
    }
    return slot_bits = 0;
}

// Memory that costs nothing until it is touched; NULL if there is none.
static void *untouched(uint64_t bytes) {
    const uint64_t size = round_up(bytes, page_size()), more = bytes < LARGE_PAGE ? 0 : LARGE_PAGE;
    uint8_t *map = mmap(NULL, size + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return NULL;
    if (!more) return map;
    uint8_t *found = (uint8_t *)round_up((uint64_t)map, more);
    if (found > map) munmap(map, (uint64_t)(found - map));
    if (found < map + more) munmap(found + size, (uint64_t)(map + more - found));
    large_pages(found, bytes);
    return found;
}

static shadow *shadow_new(uint64_t stacks) {
    shadow *s = untouched(sizeof *s);
    if (s) s->unset = untouched(stacks);
    if (s && !s->unset) munmap(s, sizeof *s), s = NULL;
    return s;
}

static void shadow_end(shadow *s, uint64_t stacks) {
    munmap(s->unset, stacks);
    munmap(s, sizeof *s);
}

// Makes one like new, but for the stacks.
static void shadow_clear(shadow *s) {
    uint8_t *unset = s->unset;
    memset(s, 0, (uint64_t)((uint8_t *)s->released - (uint8_t *)s) + s->released_groups * sizeof *s->released);
    s->unset = unset;
}

static inline uint64_t units(const region *m) { return (m->bytes >> m->unit_bits) + 1; }

// Opens a slot for memory of a size, or for that of a file; 0 when there is no memory.
static int region_open(shadow *s, uint32_t slot, uint64_t bytes, int32_t file) {
    region *m = &s->regions[slot];
    const uint64_t half = UINT64_C(1) << (s->bounds.slot_bits - 1);
    uint8_t *data = s->arena + 2 * half * slot + half;
    if (round_up(bytes + 1, page_size()) > half) return 0;
    const int how = PROT_READ | PROT_WRITE;
    if (file >= 0 ? mmap(data, bytes, how, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED
                  : mprotect(data, round_up(bytes + 1, page_size()), how)) return 0;
    if (file < 0) large_pages(data, bytes), touched(data, bytes);
    *m = (region){.data = data, .bytes = bytes, .is_writable = 1, .unit_bits = 2};
    return 1;
}

static int region_watch(shadow *s, region *m) {
    const uint64_t count = 2 * units(m);
    if (count <= sizeof s->near / sizeof *s->near - s->near_used)
        m->writers = s->near + s->near_used, s->near_used += (uint32_t)count;
    else
        m->writers = untouched(count * sizeof(record));
    m->readers = m->writers + units(m);
    return m->writers != NULL;
}

static void region_close(const shadow *s, region *m) {
    const int is_near = (uint64_t)((uint8_t *)m->writers - (uint8_t *)s) < sizeof *s;
    if (m->writers && !is_near) munmap(m->writers, 2 * units(m) * sizeof(record));
    m->writers = NULL;
}

static void region_forget(region *m) {
    if (m->writers) memset(m->writers, 0, (m->is_read ? 2 : 1) * units(m) * sizeof(record));
    m->is_read = 0;
}

// Makes units half as large, until one covers what an access has to itself.
static void region_refine(shadow *s, region *m, uint64_t at, uint32_t bytes) {
    while (m->unit_bits && ((at | bytes) & ((1u << m->unit_bits) - 1))) {
        region finer = *m;
        finer.unit_bits--;
        if (!region_watch(s, &finer)) return;
        for (uint64_t i = 0; i < m->bytes >> finer.unit_bits; i++) finer.writers[i] = m->writers[i >> 1];
        for (uint64_t i = 0; m->is_read && i < m->bytes >> finer.unit_bits; i++) finer.readers[i] = m->readers[i >> 1];
        region_close(s, m);
        *m = finer;
    }
}

// Reads of a region that no one writes need no record, but the first one, which says that there is one.
static __attribute__((noinline)) void region_bound(shadow *s, uint32_t slot) {
    const region *m = &s->regions[slot];
    s->bounds.first[slot] = (uint64_t)m->data;
    for (uint32_t log = 0; log < 5 && !m->writers; log++)
        s->bounds.count[log][slot] = m->is_read && m->bytes >> log ? m->bytes - (1u << log) + 1 : 0;
}

// ---------------------------------------------------------------------------------------------- order

static inline void shadow_thread(shadow *s, uint32_t thread) {
    s->me = (uint64_t)thread << 34 | (uint64_t)s->clock[thread / ANYMETAL_SIMD_WIDTH] << 17 | s->group << 4;
}

// Each simdgroup of the threadgroup passes a barrier.
static void shadow_barrier(shadow *s, uint32_t flags, anymetal_site at) {
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t now = ++s->clock[i];
        s->met[i] = s->simd_met[i] = now;
        s->barrier[i].at = at, s->barrier[i].flags = flags;
        for (uint32_t space = 0; space < SPACES; space++)
            if (flags >> space & 1) s->group_order[space][i] = s->simd_order[space][i] = now;
    }
}

static void shadow_simd_barrier(shadow *s, uint32_t simdgroup, uint32_t flags, anymetal_site at) {
    const uint32_t now = s->simd_met[simdgroup] = ++s->clock[simdgroup];
    s->barrier[simdgroup].at = at, s->barrier[simdgroup].flags = flags;
    for (uint32_t space = 0; space < SPACES; space++)
        if (flags >> space & 1) s->simd_order[space][simdgroup] = now;
}

// A release covers what its simdgroup did so far, and what a barrier of the threadgroup ordered before it.
static void shadow_order(shadow *s, uint32_t thread, uint32_t order) {
    if (order == __ATOMIC_ACQUIRE || order >= __ATOMIC_ACQ_REL) s->has_acquired = 1;
    if (order < __ATOMIC_RELEASE) return;
    const uint32_t simdgroup = thread / ANYMETAL_SIMD_WIDTH;
    if (s->clock[simdgroup] < MOST_CLOCK) s->clock[simdgroup]++;
    if (s->released_groups <= s->group) s->released_groups = s->group + 1;
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t before = i == simdgroup ? s->clock[i] : s->group_order[DEVICE_MEMORY][i];
        if (s->released[s->group][i] < before) s->released[s->group][i] = before;
    }
    shadow_thread(s, thread);
}

// How an earlier access of another thread is unordered before one of `thread`: 0 if it is not.
static uint32_t conflict(const shadow *s, record q, uint32_t thread, uint32_t space) {
    if (space != LOCAL_MEMORY && group_of(q) != s->group) {
        const uint32_t before = s->released[group_of(q)][thread_of(q) / ANYMETAL_SIMD_WIDTH];
        return s->has_acquired && clock_of(q) < before ? 0 : ANYMETAL_RACE;
    }
    if (thread_of(q) == thread) return 0;
    const uint32_t i = thread_of(q) / ANYMETAL_SIMD_WIDTH, clock = clock_of(q);
    const int is_lane = i == thread / ANYMETAL_SIMD_WIDTH;
    if (clock < (is_lane ? s->simd_order : s->group_order)[space][i]) return 0;
    return clock < (is_lane ? s->simd_met : s->met)[i] ? ANYMETAL_FENCE : is_lane ? ANYMETAL_LOCKSTEP : ANYMETAL_RACE;
}

// Whether an access is by the same thread, or one of the same threadgroup that is ordered before.
static inline int is_before(const shadow *s, record q, record me, uint32_t space) {
    if (is_same(q, me)) return 1;
    if (space != LOCAL_MEMORY && (q ^ me) >> 4 & MOST_GROUP) return 0;
    const uint32_t i = thread_of(q) / ANYMETAL_SIMD_WIDTH;
    const int is_lane = i == thread_of(me) / ANYMETAL_SIMD_WIDTH;
    return clock_of(q) < (is_lane ? s->simd_order : s->group_order)[space][i];
}

// Whether all that may conflict with an access is past. Nothing orders the other threadgroups.
static inline int is_over(const shadow *s, record q, uint32_t space) {
    return space == LOCAL_MEMORY && clock_of(q) < s->group_order[space][thread_of(q) / ANYMETAL_SIMD_WIDTH];
}

// The same for all readers that a record stands for.
static uint32_t readers_conflict(const shadow *s, record q, uint32_t thread, uint32_t space) {
    const uint32_t found = conflict(s, q, thread, space), i = thread_of(q) / ANYMETAL_SIMD_WIDTH;
    if (found && found != ANYMETAL_LOCKSTEP) return found;
    if (group_of(q) != s->group && space != LOCAL_MEMORY) return found;
    const uint32_t *group = s->group_order[space], *simd = s->simd_order[space];
    if (flags_of(q) & SIMDGROUPS && clock_of(q) >= group[i]) return clock_of(q) < s->met[i] ? ANYMETAL_FENCE : ANYMETAL_RACE;
    if (flags_of(q) & LANES && clock_of(q) >= simd[i]) return clock_of(q) < s->simd_met[i] ? ANYMETAL_FENCE : ANYMETAL_LOCKSTEP;
    return found;
}

// The record of readers, or of atomic writers, with one more. Of several that nothing orders, the first stays: the owner of a place often reads
// it last, right before it writes.
static record with_reader(const shadow *s, record before, record me, uint32_t space) {
    const uint32_t both = ~(uint32_t)ATOMIC | (flags_of(me) & ATOMIC), flags = flags_of(before) & both;
    if (!((before ^ me) & (THREAD_BITS | CLOCK_BITS))) // of a plain and an atomic one, the plain one conflicts with more
        return flags_of(me) & ~flags_of(before) & ATOMIC ? before : (me & ~(record)15) | flags;
    const uint32_t thread = thread_of(me), i = thread_of(before) / ANYMETAL_SIMD_WIDTH;
    if (group_of(before) != group_of(me) && space != LOCAL_MEMORY)
        return conflict(s, before, thread, space) ? (before & ~(record)15) | flags : me;
    const int is_lane = i == thread / ANYMETAL_SIMD_WIDTH;
    if (conflict(s, before, thread, space)) return (before & ~(record)15) | flags | (is_lane ? LANES : SIMDGROUPS);
    uint32_t kept = 0;
    if (clock_of(before) >= s->group_order[space][i]) kept |= SIMDGROUPS;
    if (is_lane && clock_of(before) >= s->simd_order[space][i]) kept |= LANES;
    return flags & kept ? (me & ~(record)15) | (flags & (kept | ATOMIC)) : me;
}

// A threadgroup begins: its threads have no history, and its memory no contents.
static void shadow_group(shadow *s, uint32_t index) {
    s->group = index & MOST_GROUP;
    s->has_acquired = 0;
    for (uint32_t i = 0; i < 32; i++) {
        s->clock[i] = 1;
        s->met[i] = s->simd_met[i] = 1;
        for (uint32_t space = 0; space < SPACES; space++) s->group_order[space][i] = s->simd_order[space][i] = 1;
    }
    for (uint32_t i = ANYMETAL_MAX_BUFFERS; i < REGIONS; i++) region_forget(&s->regions[i]);
}
