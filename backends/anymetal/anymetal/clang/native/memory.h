// Device memory that detects accesses outside of a buffer. A buffer ends at a protected page, and its copy for the second
// pass starts at one; the bytes of its pages that are left over before and after it hold a pattern that is checked later.
#pragma once

#define ANYMETAL_GUARD (1u << 20) // protected bytes before and after: address space only, no memory

static inline uint64_t page_size(void) {
    static uint64_t size; // every thread would store the same value
    if (!size) size = (uint64_t)sysconf(_SC_PAGESIZE);
    return size;
}

static inline uint64_t round_up(uint64_t n, uint64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// 0x7fe5: NaN as a half and, twice, as a float, and an unlikely integer.
static inline uint8_t guard_byte(const uint8_t *at) { return ((uintptr_t)at & 1) ? 0x7f : 0xe5; }

static void guard_fill(uint8_t *at, const uint8_t *end) {
    for (; at < end && (uintptr_t)at % 8; at++) *at = guard_byte(at);
    for (; at + 8 <= end; at += 8) *(uint64_t *)at = 0x7fe57fe57fe57fe5u;
    for (; at < end; at++) *at = guard_byte(at);
}

static int guard_intact(const uint8_t *at, const uint8_t *end) {
    for (; at < end && (uintptr_t)at % 8; at++)
        if (*at != guard_byte(at)) return 0;
    for (; at + 8 <= end; at += 8)
        if (*(const uint64_t *)at != 0x7fe57fe57fe57fe5u) return 0;
    for (; at < end; at++)
        if (*at != guard_byte(at)) return 0;
    return 1;
}

typedef struct {
    uint8_t *first, *end; // the accessible pages
} extent;

static extent extent_of(const uint8_t *data, uint64_t bytes) {
    uint64_t page = page_size();
    return (extent){(uint8_t *)((uintptr_t)data / page * page), (uint8_t *)round_up((uintptr_t)data + bytes, page)};
}

static void guard_repair(uint8_t *data, uint64_t bytes) {
    extent e = extent_of(data, bytes);
    guard_fill(e.first, data);
    guard_fill(data + bytes, e.end);
}

static int guard_damaged(const uint8_t *data, uint64_t bytes, int64_t *offset) {
    extent e = extent_of(data, bytes);
    if (guard_intact(e.first, data) && guard_intact(data + bytes, e.end)) return 0;
    for (const uint8_t *at = e.end; at-- > data + bytes;)
        if (*at != guard_byte(at)) *offset = at - data;
    for (const uint8_t *at = e.first; at < data; at++) // the byte nearest to the buffer says most
        if (*at != guard_byte(at)) *offset = at - data;
    return 1;
}

#define LARGE_PAGE (UINT64_C(2) << 20)

static void large_pages(void *at, uint64_t bytes) {
#ifdef MADV_HUGEPAGE
    if (bytes >= LARGE_PAGE) madvise(at, bytes, MADV_HUGEPAGE);
#endif
}

// Pages that are written next: one call costs less than a fault for each.
static void touched(void *at, uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
    if (bytes > 4 * page_size()) madvise(at, round_up(bytes, page_size()), MADV_POPULATE_WRITE);
#endif
}

// Pages between two guards, for one buffer at a time; NULL when there is no memory.
static uint8_t *guarded_map(uint64_t accessible) {
    uint8_t *base = mmap(NULL, accessible + 2 * ANYMETAL_GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (base == MAP_FAILED) return NULL;
    uint8_t *first = base + ANYMETAL_GUARD;
    if (mprotect(first, accessible, PROT_READ | PROT_WRITE)) {
        munmap(base, accessible + 2 * ANYMETAL_GUARD);
        return NULL;
    }
    large_pages(first, accessible);
    return first;
}

static void guarded_unmap(uint8_t *first, uint64_t accessible) {
    munmap(first - ANYMETAL_GUARD, accessible + 2 * ANYMETAL_GUARD);
}

// Where a buffer lies in its pages: at their end, aligned to 16 bytes, or 32 where the size allows such vectors.
static uint8_t *guarded_place(uint8_t *first, uint64_t accessible, uint64_t bytes) {
    uint8_t *data = first + accessible - round_up(bytes, bytes % 32 ? 16 : 32);
    guard_repair(data, bytes);
    return data;
}

// Threadgroup memory starts as NaN; the two passes start with different ones, so that reading it shows as a difference.
static void fill_uninitialised(uint8_t *local, uint64_t bytes, uint32_t pass) {
    if (pass)
        guard_fill(local, local + bytes);
    else
        memset(local, 0xff, bytes);
}
