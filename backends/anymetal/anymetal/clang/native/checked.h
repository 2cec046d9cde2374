// The findings of a launch, and the functions that a kernel calls if it was compiled with checks.
#pragma once

#define MOST_POLLS 1000000 // atomic loads of one place in a row, after which a thread waits forever

enum { IS_WRITE = 1, IS_ATOMIC = 2, IS_NO_USE = 4, IS_CHANGE = 8 }; // of an access; IS_NO_USE: not of what was there; an atomic change

// The address of the code behind a call, as the line table of the library has it.
#define BACK __builtin_return_address(0)
static uint64_t place_behind(const run *r, const void *back) {
    return ((uint64_t)back - r->launch->checks->code) >> 2 << 2;
}

// The start of a finding of the thread that runs.
static anymetal_finding by_thread(const run *r, uint32_t kind) {
    return (anymetal_finding){.kind = kind, .group = r->group.index, .thread_index = r->thread, .buffer = ANYMETAL_NO_BUFFER};
}

// Adds a finding: one for each kind, pair of places, and buffer.
static void find(run *r, anymetal_finding found) {
    anymetal_checks *c = r->launch->checks;
    for (uint32_t i = 0; i < c->count; i++) {
        anymetal_finding *f = &c->findings[i];
        if (f->kind == found.kind && f->place == found.place && f->other == found.other && f->buffer == found.buffer &&
            !compare(&f->at, &found.at)) {
            f->count++;
            return;
        }
    }
    found.count = 1, found.schedule = r->schedule;
    if (c->count < ANYMETAL_MAX_FINDINGS) c->findings[c->count++] = found;
    if (r->worker) r->report->kind = ANYMETAL_FOUND; // the parent finds it, too
}

static inline uint8_t *unset_bytes(const run *r, const volatile void *p) {
    return r->shadow->unset + ((const uint8_t *)p - r->pool->stacks);
}

// Whether what it holds is known there.
static inline int is_on_stack(const run *r, const volatile void *p) {
    return !r->trial && (uint64_t)((const uint8_t *)p - r->shadow->stack) < stack_pitch();
}

// The compiler stores a component of a vector as a read of the vector, and a write that changes a part of it.
// A class that it copies, it may read and write as an integer: its copy is not set, either.
static void settle_vector(run *r) {
    shadow *s = r->shadow;
    const anymetal_finding found = s->vector.found;
    uint32_t first = 0, end = found.bytes;
    if (!found.bytes) return;
    s->vector.found.bytes = 0;
    for (uint32_t i = 0; i < s->vector.copy_count; i++) {
        const uint8_t *copy = s->vector.copies[i];
        if (memcmp(copy, s->vector.before, found.bytes)) continue;
        memset(unset_bytes(r, copy), ANYMETAL_OF_CLASS, found.bytes);
        return;
    }
    while (s->vector.is_stored && first < end && s->vector.at[first] == s->vector.before[first]) first++;
    while (s->vector.is_stored && first < end && s->vector.at[end - 1] == s->vector.before[end - 1]) end--;
    const uint32_t size = s->vector.what > ANYMETAL_OF_VECTORS ? s->vector.what - ANYMETAL_OF_VECTORS : found.bytes;
    const uint32_t most = found.bytes % 3 ? found.bytes / 2 : found.bytes / 3 * 2; // of a swizzle
    uint32_t same = 0; // components; several may be stored at once
    for (uint32_t i = 0; i < found.bytes; i += size) same += !memcmp(s->vector.at + i, s->vector.before + i, size);
    if (!s->vector.is_stored || first == end || (size < found.bytes ? !same : end - first > most)) {
        find(r, found);
        return;
    }
    const uint32_t part = size > 2 ? size : found.bytes;
    for (uint32_t i = 0; i < found.bytes; i += part) // the components that are not stored
        if (memcmp(s->vector.at + i, s->vector.before + i, part) == 0 && s->vector.unset[i])
            memset(unset_bytes(r, s->vector.at + i), (int)s->vector.what, part);
}

// A write that left the bytes as they were is a finding of its own kind. This looks after the write.
static void settle(run *r) {
    shadow *s = r->shadow;
    settle_vector(r);
    anymetal_finding found = s->pending.found;
    if (!found.bytes) return;
    s->pending.found.bytes = 0;
    if (!memcmp(s->pending.at, s->pending.before, found.bytes)) found.kind = ANYMETAL_SAME_VALUE;
    find(r, found);
}

static void stop_thread(run *r) {
    r->report->kind = ANYMETAL_FOUND;
    abandon(r);
}

static void stop_at(run *r, anymetal_finding found) {
    find(r, found);
    stop_thread(r);
}

static anymetal_finding access_finding(const run *r, const region *m, const uint8_t *p, uint32_t bytes, uint32_t access,
                                     uint64_t place, uint32_t kind) {
    anymetal_finding found = by_thread(r, kind);
    found.place = place << 2, found.bytes = bytes, found.is_write = access & IS_WRITE;
    if (!m) return found; // private memory
    const int64_t number = m - r->shadow->regions;
    found.offset = p - m->data;
    found.buffer = number == VARIABLES ? ANYMETAL_VARIABLES : (int32_t)number;
    return found;
}

__attribute__((noinline)) static void clash(run *r, const region *m, const uint8_t *p, uint32_t bytes, uint32_t access,
                                            uint64_t place, record q, uint32_t kind, uint32_t was_write) {
    shadow *s = r->shadow;
    const int is_mixed = !(access & IS_ATOMIC) != !(flags_of(q) & ATOMIC);
    // Two lanes that write one place by one instruction: in step, they do so at the same time.
    if (kind == ANYMETAL_LOCKSTEP && was_write && access & IS_WRITE && place_of(q) == place) kind = ANYMETAL_RACE;
    if (is_mixed && kind == ANYMETAL_RACE) kind = ANYMETAL_MIXED;
    anymetal_finding found = access_finding(r, m, p, bytes, access, place, kind);
    found.other = place_of(q) << 2, found.was_write = was_write, found.other_thread = thread_of(q);
    if (thread_of(q) == r->thread && group_of(q) == s->group) found.other_thread = UINT32_MAX; // one of several readers
    found.other_group = m->space == LOCAL_MEMORY ? r->group.index : group_of(q);
    if (m->space != LOCAL_MEMORY && r->group.groups[0] * r->group.groups[1] * r->group.groups[2] > MOST_GROUP)
        found.other_group = group_of(q) == s->group ? r->group.index : UINT32_MAX; // more than a record can tell apart
    const uint32_t i = r->thread / ANYMETAL_SIMD_WIDTH;
    found.barrier = s->barrier[i].at, found.barrier_flags = s->barrier[i].flags;
    if (!(access & IS_WRITE) || !was_write || is_mixed || s->pending.found.bytes || bytes > sizeof s->pending.before) {
        find(r, found);
        return;
    }
    s->pending.at = p, s->pending.found = found;
    memcpy(s->pending.before, p, bytes);
}

// The memory that a kernel uses beside its buffers and threadgroup memory: its stack, and the data of its library.
__attribute__((noinline)) static void touch_elsewhere(run *r, const uint8_t *p, uint32_t bytes, uint32_t access,
                                                      uint64_t place) {
    const anymetal_checks *c = r->launch->checks;
    if (p >= (const uint8_t *)r->pool && p < r->pool->stacks) return;
    if (p >= (const uint8_t *)r && p < (const uint8_t *)(r + 1)) return;
    if ((uint64_t)p - c->code < c->code_bytes && !(access & IS_WRITE)) return;
    const region *m = &r->shadow->regions[VARIABLES];
    if (m->bytes && (uint64_t)(p - m->data) < m->bytes + page_size()) { // behind the last variable
        stop_at(r, access_finding(r, m, p, bytes, access, place, ANYMETAL_OUTSIDE));
        return;
    }
    anymetal_finding found = by_thread(r, ANYMETAL_OUTSIDE);
    found.place = place << 2, found.offset = (int64_t)p, found.bytes = bytes, found.is_write = access & IS_WRITE;
    stop_at(r, found);
}

static inline int is_in_variable(shadow *s, const anymetal_checks *c, uint64_t at, uint32_t bytes) {
    for (uint32_t n = 0, i = s->variable; n < c->variable_count; n++, i = i + 1 < c->variable_count ? i + 1 : 0) {
        const uint64_t from = at - c->variables[i].at;
        if (from >= c->variables[i].bytes) continue;
        s->variable = i;
        return from + bytes <= c->variables[i].bytes;
    }
    return 0;
}

// An access outside of all buffers, or in none of them.
__attribute__((noinline)) static void touch_outside(run *r, const region *m, const uint8_t *p, uint32_t bytes,
                                                   uint32_t access, uint64_t place) {
    if (m == &r->shadow->regions[VARIABLES] && (uint64_t)(p - m->data) >= m->bytes) {
        touch_elsewhere(r, p, bytes, access, place);
        return;
    }
    stop_at(r, access_finding(r, m, p, bytes, access, place, ANYMETAL_OUTSIDE));
}

__attribute__((noinline)) static void report_access(run *r, const region *m, const uint8_t *p, uint32_t bytes,
                                                    uint32_t access, uint64_t place, uint32_t kind) {
    find(r, access_finding(r, m, p, bytes, access, place, kind));
}

__attribute__((noinline)) static void report_unwritten(run *r, const region *m, const uint8_t *p, uint32_t i, uint32_t bytes,
                                                      uint32_t access, uint64_t place, uint32_t what) {
    shadow *s = r->shadow;
    const anymetal_finding found = access_finding(r, m, p + i, bytes, access, place, ANYMETAL_UNINITIALIZED);
    if ((m && m->space == TEXTURE_MEMORY) || (m ? bytes < 8 && bytes % 3 : what == ANYMETAL_OF_NUMBERS || bytes < 2) || bytes > sizeof s->vector.before || access & IS_ATOMIC) {
        find(r, found);
        return;
    }
    s->vector.at = p, s->vector.found = found, s->vector.what = what, s->vector.is_stored = s->vector.copy_count = 0;
    memcpy(s->vector.before, p, bytes);
    if (!m) memcpy(s->vector.unset, unset_bytes(r, p), bytes);
}

// An access before the next one: was that of a vector its end?
static inline void settle_before(run *r, const uint8_t *p, uint32_t bytes, uint32_t access) {
    shadow *s = r->shadow;
    if (s->vector.found.bytes) {
        const anymetal_finding *found = &s->vector.found;
        const int is_write = access == IS_WRITE && bytes == found->bytes && found->thread_index == r->thread;
        // Only the component, if the compiler has read the vector for its next stores.
        const int is_part = access == IS_WRITE && bytes < found->bytes && found->thread_index == r->thread &&
                            (uint64_t)(p - s->vector.at) < found->bytes;
        if ((is_part || (is_write && p == s->vector.at)) && !s->vector.is_stored && !s->vector.copy_count)
            s->vector.is_stored = 1;
        else if (is_write && p != s->vector.at && s->vector.what == ANYMETAL_OF_CLASS && s->vector.copy_count < 4 &&
                 is_on_stack(r, p))
            s->vector.copies[s->vector.copy_count++] = p;
        else
            settle_vector(r);
    }
    if (s->pending.found.bytes) settle(r);
}

enum { ENDED = 0x80 }; // of a byte of a stack, beside what anymetal_unset says of it

// A variable with an address that the kernel keeps. Its memory is no other variable's (launcher.py).
void anymetal_life(volatile void *variable, uint64_t bytes, const char *name, anymetal_site here) {
    run *r = current;
    shadow *s = r->shadow;
    if (!s || !is_on_stack(r, variable)) return;
    const uint64_t at = (uint64_t)((volatile uint8_t *)variable - s->stack);
    uint32_t i = 0;
    while (i < s->life_count && s->lives[i].at != at) i++;
    if (*unset_bytes(r, variable) == ENDED) memset(unset_bytes(r, variable), 0, bytes);
    if (i == sizeof s->lives / sizeof *s->lives) return;
    if (i == s->life_count) s->life_count++;
    s->lives[i].at = at, s->lives[i].bytes = (uint32_t)bytes, s->lives[i].name = name, s->lives[i].here = here;
}

void anymetal_lives(volatile void *variable, uint32_t is_begin) {
    run *r = current;
    shadow *s = r->shadow;
    if (!s || !is_on_stack(r, variable)) return;
    for (uint32_t i = 0; i < s->life_count; i++) {
        if (s->lives[i].at != (uint64_t)((volatile uint8_t *)variable - s->stack)) continue;
        s->has_ended |= !is_begin;
        memset(unset_bytes(r, variable), is_begin ? 0 : ENDED, s->lives[i].bytes);
    }
}

__attribute__((noinline)) static void touch_ended(run *r, const uint8_t *p, uint32_t bytes, uint32_t access, uint64_t place) {
    shadow *s = r->shadow;
    anymetal_finding found = access_finding(r, NULL, p, bytes, access, place, ANYMETAL_ENDED);
    for (uint32_t i = 0; i < s->life_count; i++) {
        if ((uint64_t)(p - s->stack) - s->lives[i].at >= s->lives[i].bytes) continue;
        found.type = s->lives[i].name, found.barrier = s->lives[i].here;
    }
    memset(unset_bytes(r, p), 0, bytes);
    find(r, found);
}

// The stack of a thread. What the compiler put there itself is set; of padding only the end of a word is never written.
// Of a class it may read more than is used.
__attribute__((noinline)) static void touch_stack(run *r, const uint8_t *p, uint32_t bytes, uint32_t access, uint64_t place) {
    uint8_t *unset = unset_bytes(r, p);
    uint32_t i = 0;
    settle_before(r, p, bytes, access);
    if (r->shadow->has_ended && memchr(unset, ENDED, bytes)) touch_ended(r, p, bytes, access, place);
    if (access & IS_WRITE) memset(unset, 0, bytes);
    if (access & (IS_WRITE | IS_NO_USE)) return;
    while (i < bytes && !unset[i]) i += bytes < 4 ? 1 : 4;
    if (i >= bytes || (unset[i] == ANYMETAL_OF_CLASS && memchr(unset, 0, bytes))) return;
    report_unwritten(r, NULL, p, i, bytes, access, place, unset[i]);
}

void anymetal_unset_component(void) {
    if (current->shadow) report_access(current, NULL, NULL, 0, 0, place_behind(current, BACK) >> 2, ANYMETAL_UNINITIALIZED);
}

// Gives it a value of which arithmetic changes most bytes, and the store of a component few.
void anymetal_unset(volatile void *variable, uint64_t bytes, uint32_t what) {
    run *r = current;
    if (!r->shadow || !is_on_stack(r, variable)) return;
    settle_vector(r);
    r->shadow->has_unset = 1;
    memset(unset_bytes(r, variable), (int)what, bytes);
    if (what) memset((void *)variable, 0xa5, bytes);
}

// The compiler reads a struct that it copies as integers, with the padding behind a small member: bytes at the end of a
// word, whose first one or two are written. A third one may be of a vector of bytes, unless more than a word is read.
static int is_padding(const region *m, uint64_t at, uint32_t bytes, uint32_t i) {
    const uint64_t word = (at + i) & ~(uint64_t)3;
    uint32_t written = 0;
    if (bytes < 4 || m->space == TEXTURE_MEMORY || m->unit_bits > 1 || word < at) return 0;
    while (written < 4 && m->writers[(word + written) >> m->unit_bits]) written++;
    return written && word + written <= at + i && (bytes > 4 || written < 3);
}

// Whether an atomic access of another thread may happen at the same time.
static inline int is_by_others(const shadow *s, record q, record me, uint32_t space) {
    return q & ATOMIC && (!is_same(q, me) || flags_of(q) & (LANES | SIMDGROUPS)) && readers_conflict(s, q, thread_of(me), space);
}

// An access to memory that may be written: what its units hold, and what they hold from now on.
__attribute__((noinline)) static void touch_units(run *r, region *m, uint64_t at, uint32_t bytes, uint32_t access,
                                                  uint64_t place) {
    shadow *s = r->shadow;
    const uint8_t *p = m->data + at;
    if (m == &s->regions[VARIABLES] && !is_in_variable(s, r->launch->checks, at, bytes)) {
        report_access(r, m, p, bytes, access, place, ANYMETAL_OUTSIDE);
        stop_thread(r);
        return;
    }
    settle_before(r, p, bytes, access);
    if ((at | bytes) & ((1u << m->unit_bits) - 1)) region_refine(s, m, at, bytes);
    const uint32_t thread = r->thread, space = m->space;
    const record me = place << 44 | s->me | (access & IS_ATOMIC ? ATOMIC : 0);
    record *w = &m->writers[at >> m->unit_bits], *q = &m->readers[at >> m->unit_bits];
    uint32_t said = 0; // one finding an access
    for (uint32_t i = 0; i < bytes; i += 1u << m->unit_bits, w++, q++) {
        uint32_t kind = 0;
        if (access & IS_ATOMIC && space != TEXTURE_MEMORY && !s->is_contended) // of texels no interleaving is tried
            s->is_contended = (!(access & IS_CHANGE) && is_by_others(s, *w, me, space)) ||
                              (access & IS_WRITE && m->is_read && is_by_others(s, *q, me, space));
        if (!*w) {
            if (access & IS_WRITE) m->written += 1u << m->unit_bits;
            if (m->is_undefined && !said && !is_padding(m, at, bytes, i) && (access & (IS_WRITE | IS_ATOMIC)) != IS_WRITE && !(access & IS_NO_USE))
                said = 1, report_unwritten(r, m, p, i, bytes, access, place, 0);
        } else if (!(*w & me & ATOMIC) && (!is_same(*w, me) || flags_of(*w) & (LANES | SIMDGROUPS))) {
            kind = flags_of(*w) & ATOMIC ? readers_conflict(s, *w, thread, space) : conflict(s, *w, thread, space);
            if (kind && !said) said = 1, clash(r, m, p, bytes, access, place, *w, kind, 1);
        }
        if (space == TEXTURE_MEMORY && !access && !said && is_same(*w, me) && !((*w ^ me) & (CLOCK_BITS | ATOMIC))) {
            anymetal_finding found = access_finding(r, m, p, bytes, access, place, ANYMETAL_UNFENCED);
            found.other = place_of(*w) << 2, said = 1;
            find(r, found);
        }
        if (!(access & IS_WRITE)) {
            if (*q & WRITTEN && access & IS_ATOMIC && !said && (kind = readers_conflict(s, *q, thread, space)))
                said = 1, clash(r, m, p, bytes, access, place, *q, kind, 1);
            *q = *q ? with_reader(s, *q, me, space) : me;
            m->is_read = 1;
            continue;
        }
        // The record of a plain access stays until an atomic access is ordered after it: the next one may conflict, too.
        // So does one that another simdgroup may still conflict with, among those of readers.
        const record before = *w;
        if (before & me & ATOMIC)
            *w = with_reader(s, before, me, space);
        else if (!kind || !(access & IS_ATOMIC))
            *w = me;
        kind = 0;
        if (m->is_read && *q && !(*q & me & ATOMIC)) {
            kind = readers_conflict(s, *q, thread, space);
            if (kind && !said) said = 1, clash(r, m, p, bytes, access, place, *q, kind, flags_of(*q) & WRITTEN);
        }
        if (!(access & IS_ATOMIC))
            m->is_read ? *q = 0 : 0;
        else if (before && before != *w && !(before & ATOMIC) && !is_over(s, before, space))
            *q = before | WRITTEN, m->is_read = 1;
        else if (m->is_read && !kind && is_over(s, *q, space))
            *q = 0;
    }
}

// The same for an access of one unit that needs no finding; 0 if it may.
static inline __attribute__((always_inline)) int touch_unit(run *r, region *m, uint64_t at, uint32_t bytes, uint32_t access,
                                                            uint64_t place) {
    shadow *s = r->shadow;
    if (at & (bytes - 1) || bytes != 1u << m->unit_bits || s->pending.found.bytes | s->vector.found.bytes) return 0;
    if (m == &s->regions[VARIABLES] && !is_in_variable(s, r->launch->checks, at, bytes)) return 0;
    const record me = place << 44 | s->me;
    const uint64_t unit = at >> m->unit_bits;
    const record writer = m->writers[unit];
    if (m->space == TEXTURE_MEMORY && !(access & IS_WRITE) && writer && is_same(writer, me)) return 0;
    if (writer ? flags_of(writer) & (LANES | SIMDGROUPS) || !is_before(s, writer, me, m->space) : !(access & IS_WRITE) && m->is_undefined) return 0;
    if (!(access & IS_WRITE)) {
        const record reader = m->readers[unit];
        m->readers[unit] = reader ? with_reader(s, reader, me, m->space) : me;
        m->is_read = 1;
        return 1;
    }
    if (m->is_read) {
        const record reader = m->readers[unit];
        if (reader && (flags_of(reader) & (LANES | SIMDGROUPS) || !is_before(s, reader, me, m->space))) return 0;
        m->readers[unit] = 0;
    }
    if (!writer) m->written += bytes;
    m->writers[unit] = me;
    return 1;
}

static inline __attribute__((always_inline)) void touch(const void *address, uint32_t bytes, uint32_t access, void *back) {
    run *r = current;
    shadow *s = r->shadow;
    if (!s) return;
    const uint8_t *p = address;
    const uint64_t place = ((uint64_t)back - s->code) >> 2 & 0xfffff;
    const uint64_t slot = (uint64_t)(p - s->arena) >> s->bounds.slot_bits;
    region *m = &s->regions[VARIABLES];
    if (__builtin_expect(slot < SLOTS, 1)) {
        m = &s->regions[slot];
    } else if ((uint64_t)(p - s->stack) < stack_pitch()) {
        if (!r->trial) touch_stack(r, p, bytes, access, place);
        return;
    }
    const uint64_t at = (uint64_t)(p - m->data);
    if (__builtin_expect(at >= m->bytes || m->bytes - at < bytes, 0))
        touch_outside(r, m, p, bytes, access, place);
    else if (access & IS_WRITE && !m->is_writable)
        report_access(r, m, p, bytes, access, place, ANYMETAL_READ_ONLY);
    else if (!m->writers) { // nobody writes it, or this pass only looks at bounds
        s->accesses++;
        if (slot < SLOTS && !s->bounds.count[0][slot]) m->is_read = 1, region_bound(s, (uint32_t)slot); // the first one
    } else if (access > IS_WRITE || !touch_unit(r, m, at, bytes, access, place))
        touch_units(r, m, at, bytes, access, place);
}

// Code with inlined.c calls the second names of plain reads. Other accesses are rarer, and share their code: a copy of it
// for each would take most of the time of compiling the launcher.
__attribute__((noinline)) static void touch_shared(const void *p, uint32_t bytes, uint32_t access, void *back) {
    touch(p, bytes, access, back);
}
#define ACCESS(NAME, BYTES, ACCESS) void NAME##BYTES(void *p) { touch(p, BYTES, ACCESS, BACK); }
#define SHARED(NAME, BYTES, ACCESS) void NAME##BYTES(void *p) { touch_shared(p, BYTES, ACCESS, BACK); }
#define ACCESSES(BYTES) \
    ACCESS(anymetal_read, BYTES, 0) ACCESS(__tsan_write, BYTES, IS_WRITE) \
    SHARED(__tsan_read, BYTES, 0) SHARED(__tsan_unaligned_read, BYTES, 0) SHARED(anymetal_unaligned_read, BYTES, 0) \
    SHARED(__tsan_unaligned_write, BYTES, IS_WRITE)
ACCESSES(1) ACCESSES(2) ACCESSES(4) ACCESSES(8) ACCESSES(16)

// What libraries call when they are loaded.
void __tsan_init(void) {}
void __sanitizer_cov_bool_flag_init(void) {}
void __sanitizer_cov_pcs_init(void) {}

static void touch_range(const void *start, uint64_t bytes, uint32_t access, void *back) {
    const uint8_t *p = start;
    for (uint64_t done = 0; done < bytes; done += 16)
        touch(p + done, bytes - done < 16 ? (uint32_t)(bytes - done) : 16, access, back);
}
// Vectors of a size that the compiler's instrumentation leaves out (launcher.py). A read of a large one may belong to the
// store of a component.
void anymetal_read_range(void *p, uint64_t bytes) { touch_range(p, bytes, bytes > 16 ? IS_NO_USE : 0, BACK); }
void anymetal_write_range(void *p, uint64_t bytes) { touch_range(p, bytes, IS_WRITE, BACK); }
// A struct may have bytes that nobody writes: copying it is no use of them. Other memory keeps no such marks.
static void touch_copy(void *to, const void *from, uint64_t bytes, void *back) {
    run *r = current;
    touch_range(from, bytes, IS_NO_USE, back);
    touch_range(to, bytes, IS_WRITE, back);
    if (!r->shadow || !is_on_stack(r, from)) return;
    const uint8_t *unset = unset_bytes(r, from);
    uint64_t i = 0;
    if (is_on_stack(r, to)) {
        memmove(unset_bytes(r, to), unset, bytes);
        return;
    }
    while (i < bytes && (!unset[i] || unset[i] == ANYMETAL_OF_CLASS)) i++;
    if (i < bytes) report_access(r, NULL, from, 1, 0, place_behind(r, back) >> 2, ANYMETAL_UNINITIALIZED);
}
void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    touch_copy(to, from, bytes, BACK);
    return memcpy(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes) {
    touch_copy(to, from, bytes, BACK);
    return memmove(to, from, bytes);
}
void *__tsan_memset(void *to, int value, size_t bytes) {
    touch_range(to, bytes, IS_WRITE, BACK);
    return memset(to, value, bytes);
}

static uint32_t try_weak_exchange(run *r, const volatile void *p, uint32_t bytes, const void *expected, uint64_t place);
static uint32_t try_operation(run *r, const uint8_t *p, uint32_t bytes, uint32_t what, const void *value, uint64_t place);

uint32_t anymetal_atomic_access(const volatile void *address, uint32_t bytes, uint32_t what, uint32_t order, const void *value) {
    static const uint32_t accesses[] = {0, IS_WRITE | IS_CHANGE, IS_WRITE | IS_NO_USE, IS_WRITE};
    run *r = current;
    shadow *s = r->shadow;
    if (!s) return r->trial && what == ANYMETAL_COMPARE && try_weak_exchange(r, address, bytes, value, place_behind(r, BACK));
    if (!r->trial) shadow_order(s, r->thread, order);
    touch((const void *)address, bytes, IS_ATOMIC | accesses[what], BACK);
    if (r->trial) return try_operation(r, (const uint8_t *)address, bytes, what, value, place_behind(r, BACK));
    s->operations++, s->has_exchange |= what == ANYMETAL_COMPARE;
    if (what) r->launch->checks->has_atomics = 1;
    s->is_shared |= (uint64_t)((const volatile uint8_t *)address - s->arena) >> s->bounds.slot_bits < ANYMETAL_MAX_BUFFERS;
    if (s->polled != address) s->polls = 0;
    s->polled = what ? NULL : address;
    if (!what && ++s->polls > MOST_POLLS) {
        anymetal_finding found = by_thread(r, ANYMETAL_WAITS);
        found.place = place_behind(r, BACK);
        stop_at(r, found);
    }
    return 0;
}

void anymetal_texel(const void *address, uint32_t bytes, uint32_t is_write, void *back) {
    touch(address, bytes, is_write ? IS_WRITE : 0, back);
}
void anymetal_texel_atomic(const void *address, uint32_t bytes, uint32_t is_write, void *back) {
    run *r = current;
    if (!r->shadow) return;
    if (is_write) r->launch->checks->has_atomics = 1;
    r->shadow->is_shared = 1;
    touch(address, bytes, IS_ATOMIC | (is_write ? IS_WRITE : 0) | (is_write == 2 ? IS_NO_USE : 0), back);
}
// Of a thread its own writes are before what it reads from now on.
void anymetal_texel_fence(void) {
    shadow *s = current->shadow;
    const uint32_t simdgroup = current->thread / ANYMETAL_SIMD_WIDTH;
    if (!s) return;
    if (s->clock[simdgroup] < MOST_CLOCK) s->clock[simdgroup]++;
    shadow_thread(s, current->thread);
}
void anymetal_texture_fault(uint32_t kind, const anymetal_texture *texture, uint32_t is_write, uint32_t x, uint32_t y, uint32_t z,
                            uint32_t slice, uint32_t lod, void *back) {
    run *r = current;
    if (!r->shadow) return;
    if (texture && !texture->width) { // a null texture
        touch(NULL, 4, is_write ? IS_WRITE : 0, back);
        return;
    }
    anymetal_finding found = by_thread(r, kind);
    const uint64_t slot = texture ? (uint64_t)(texture->data - r->shadow->arena) >> r->shadow->bounds.slot_bits : SLOTS;
    found.place = place_behind(r, back), found.is_write = is_write, found.offset = (int64_t)(x | (uint64_t)y << 32);
    found.other_thread = z, found.other_group = slice, found.barrier_flags = lod;
    if (slot < SLOTS) found.buffer = (int32_t)slot;
    find(r, found);
}

void anymetal_half_index(float value) {
    if (!current->shadow) return;
    anymetal_finding found = by_thread(current, ANYMETAL_HALF_INDEX);
    found.place = place_behind(current, BACK), found.offset = value == value ? (int64_t)value : 0;
    find(current, found);
}

void anymetal_fence(uint32_t order) {
    if (current->shadow) shadow_order(current->shadow, current->thread, order);
}

uint32_t anymetal_missing_lane(uint32_t lane, uint32_t slot, const char *file, uint32_t line, uint32_t column) {
    if (!current->shadow) return slot;
    anymetal_finding found = by_thread(current, ANYMETAL_MISSING_LANE);
    found.offset = lane, found.at = (anymetal_site){file, line, column};
    found.place = place_behind(current, BACK); // it knows of inlined functions, too
    find(current, found);
    return slot;
}

void anymetal_argument(const char *call) {
    if (!current->shadow) return;
    anymetal_finding found = by_thread(current, ANYMETAL_ARGUMENT);
    found.type = call, found.place = place_behind(current, BACK);
    find(current, found);
}

// What the compiler calls for undefined arithmetic; the data of each begins with the place.
typedef struct {
    anymetal_site at;
    const struct { uint16_t kind, info; char name[]; } *types[2]; // of the operands or the result
} typed_place;

static anymetal_finding of_place(const typed_place *d, uint32_t kind, uint32_t type, const void *back) {
    anymetal_finding found = by_thread(current, kind);
    found.at = d->at, found.type = d->types[type]->name, found.place = place_behind(current, back);
    return found;
}

#define ARITHMETIC(NAME, KIND, TYPE) \
    void __ubsan_handle_##NAME(const typed_place *d) { if (current->shadow) find(current, of_place(d, KIND, TYPE, BACK)); }
ARITHMETIC(add_overflow, ANYMETAL_OVERFLOW, 0) ARITHMETIC(sub_overflow, ANYMETAL_OVERFLOW, 0)
ARITHMETIC(mul_overflow, ANYMETAL_OVERFLOW, 0) ARITHMETIC(negate_overflow, ANYMETAL_OVERFLOW, 0)
ARITHMETIC(float_cast_overflow, ANYMETAL_FLOAT_CAST, 1)

// Of an integer type the compiler tells the logarithm of its bits, and in the lowest bit whether it is signed. A number
// without a sign may wrap (findings.py): one finding for all code of a place.
void __ubsan_handle_implicit_conversion(const typed_place *d) {
    anymetal_finding found = of_place(d, ANYMETAL_TRUNCATION, 1, BACK);
    if (!(d->types[1]->info & 1)) found.place = 0;
    if (current->shadow) find(current, found);
}

void __ubsan_handle_shift_out_of_bounds(const typed_place *d, uint64_t value, uint64_t by) {
    const uint32_t unused = 64 - (1u << (d->types[1]->info >> 1)), bits = 1u << (d->types[0]->info >> 1);
    anymetal_finding found = of_place(d, ANYMETAL_SHIFT, 0, BACK);
    (void)value;
    found.offset = d->types[1]->info & 1 ? (int64_t)(by << unused) >> unused : (int64_t)(by << unused >> unused);
    if ((uint64_t)found.offset < bits) found.kind = ANYMETAL_SHIFT_BASE;
    if (current->shadow) find(current, found);
}

// After these the processor would stop.
#define FATAL(NAME, KIND) \
    void __ubsan_handle_##NAME(const typed_place *d) { if (current->shadow) stop_at(current, of_place(d, KIND, 0, BACK)); }
FATAL(divrem_overflow, ANYMETAL_DIVISION)

// An address is not aligned, or a variable ends before it. In place of a second type is the alignment's logarithm.
void __ubsan_handle_type_mismatch_v1(const typed_place *d, uint64_t address) {
    run *r = current;
    shadow *s = r->shadow;
    const uint32_t alignment = 1u << *(const uint8_t *)&d->types[1];
    if (!s) return;
    anymetal_finding found = of_place(d, address & (alignment - 1) ? ANYMETAL_MISALIGNED : ANYMETAL_PRIVATE, 0, BACK);
    const uint64_t slot = (address - (uint64_t)s->arena) >> s->bounds.slot_bits;
    const region *m = &s->regions[slot < SLOTS ? slot : VARIABLES];
    if (found.kind == ANYMETAL_MISALIGNED && (slot < SLOTS || address - (uint64_t)m->data < m->bytes))
        found.buffer = slot < SLOTS ? (int32_t)slot : ANYMETAL_VARIABLES, found.offset = (int64_t)(address - (uint64_t)m->data);
    found.bytes = alignment;
    stop_at(r, found);
}

void __ubsan_handle_local_out_of_bounds_abort(void) {
    run *r = current;
    anymetal_finding found = by_thread(r, ANYMETAL_PRIVATE);
    found.place = place_behind(r, BACK);
    stop_at(r, found);
}

// The result of a function without a `return`: the place is that of the function.
void __ubsan_handle_missing_return(const anymetal_site *function) {
    anymetal_finding found = by_thread(current, ANYMETAL_UNINITIALIZED);
    found.at = *function;
    stop_at(current, found);
}
