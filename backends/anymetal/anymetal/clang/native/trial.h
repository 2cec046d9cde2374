// What one interleaving cannot see. In a pass, a thread runs from barrier to barrier on its own, so that a change made of
// an atomic load and an atomic store always happens at once, and a weak exchange never fails. If a kernel may depend on
// that, further passes follow the one with checks, from the same contents of the buffers: one in the same order in which
// weak exchanges fail, and some that switch between threads at their atomic operations, with several threadgroups at once.
// Of memory the last ones check the bounds only. Their results are compared and dropped.
#pragma once

enum { WEAK = 1, SECOND, PARK, RANDOM, PRIORITY }; // how a pass goes: the last three switch
enum { PARKED = DONE + 1, ASLEEP };                // states of a fibre: before its next write; until an element changes
enum {
    RESIDENT = 8,      // threadgroups at once
    LOADS = 8,         // of each thread the last ones
    MOST_STEPS = 1 << 14, // atomic operations of an interleaving
    MOST_POLLED = 64,  // repetitions after which a thread waits
    ELEMENTS = 2 * MOST_STEPS,
    PLACES = 16
};

// A value that a thread has loaded, until it changes the element, or comes to a barrier.
typedef struct {
    const uint8_t *at;
    uint64_t key, value, place;
    uint32_t version, epoch, time, bytes;
} seen;

typedef struct {
    seen loads[LOADS];
    uint64_t key, place, value; // of the last operation
    uint32_t next, epoch, time, polls, accesses, has_failed;
} memo;

// The last change of an element: who, where, and the load that a store was computed from.
typedef struct {
    uint64_t key, place, from, fed;
    uint32_t version, group, thread, pass;
} element;

typedef struct {
    anymetal_group group;
    uint8_t *local; // its threadgroup memory while another one runs
} resident;

struct trial {
    uint32_t how, width, now, asleep, is_over, changes, pass, failures, waits;
    uint64_t state, steps, change[3], only, ready[ANYMETAL_MAX_THREADS / 64], failed[PLACES], waited[PLACES];
    uint16_t order[ANYMETAL_MAX_THREADS];
    resident residents[RESIDENT];
    memo memos[ANYMETAL_MAX_THREADS];
    element elements[ELEMENTS]; // a hash table of those of this pass
    anymetal_finding twice;
    uint8_t *results[ANYMETAL_MAX_BUFFERS];
    bounds counting; // of reads that are all told
};

static int is_interleaved(const run *r) { return r->trial && r->trial->how > SECOND; }

static void trial_thread(run *r) {
    r->launch->run_thread(&r->trial->residents[r->running / r->trial->width].group, r->thread);
}

// ---------------------------------------------------------------------------------------------- operations

static element *element_of(trial *t, uint64_t key) {
    uint64_t hash = key;
    uint32_t i = (uint32_t)mix(&hash) & (ELEMENTS - 1);
    while (t->elements[i].pass == t->pass && t->elements[i].key != key) i = (i + 1) & (ELEMENTS - 1);
    if (t->elements[i].pass != t->pass) t->elements[i] = (element){.key = key, .pass = t->pass, .thread = UINT32_MAX};
    return &t->elements[i];
}

static region *region_at(const run *r, const uint8_t *p) {
    const uint64_t slot = (uint64_t)(p - r->shadow->arena) >> r->shadow->bounds.slot_bits;
    return &r->shadow->regions[slot < SLOTS ? slot : VARIABLES];
}

// Of threadgroup memory each threadgroup has its own.
static uint64_t key_of(const run *r, const region *m, const uint8_t *p) {
    return (uint64_t)p ^ (m - r->shadow->regions >= ANYMETAL_MAX_BUFFERS ? (uint64_t)(r->group.index + 1) << 48 : 0);
}

static seen *loaded(memo *m, uint64_t key) {
    for (int i = 0; i < LOADS; i++)
        if (m->loads[i].key == key && m->loads[i].epoch == m->epoch) return &m->loads[i];
    return NULL;
}

// A finding about an element that another thread has changed.
static anymetal_finding about(const run *r, const uint8_t *p, uint32_t bytes, uint64_t place, uint32_t kind, const element *e) {
    anymetal_finding found = access_finding(r, region_at(r, p), p, bytes, IS_WRITE, place >> 2, kind);
    found.other = e->place, found.other_group = e->group, found.other_thread = e->thread, found.was_write = 1;
    return found;
}

static void wake(run *r, uint64_t key) {
    trial *t = r->trial;
    for (uint32_t f = 0; f < ANYMETAL_MAX_THREADS && t->asleep; f++) {
        if (r->pool->fibres[f].state != ASLEEP || t->memos[f].key != key) continue;
        r->pool->fibres[f].state = READY, t->ready[f / 64] |= UINT64_C(1) << f % 64, t->asleep--;
    }
}

static void stop_with(run *r, uint32_t state) {
    r->pool->fibres[r->running].state = state;
    to_host();
}

// A thread that repeats an operation without any other access, and gets the same value, sleeps until that changes.
static void sleep_for(run *r, const uint8_t *p, uint32_t bytes, uint64_t place, memo *m, uint64_t *now) {
    trial *t = r->trial;
    do {
        t->asleep++;
        stop_with(r, ASLEEP);
        memcpy(now, p, bytes);
    } while (*now == m->value);
    const element *e = element_of(t, m->key);
    anymetal_finding found = about(r, p, bytes, place, ANYMETAL_RELIES_ON, e);
    const int is_far = e->group != r->group.index;
    found.values[0] = is_far ? 2 : e->thread / ANYMETAL_SIMD_WIDTH != r->thread / ANYMETAL_SIMD_WIDTH;
    find(r, found);
    for (uint32_t i = 0; i < t->waits; i++)
        if (t->waited[i] == place) return;
    if (t->waits < PLACES) t->waited[t->waits++] = place;
}

static int is_known(const trial *t, uint64_t place) {
    for (uint32_t i = 0; i < t->waits; i++)
        if (t->waited[i] == place) return 1;
    return 0;
}

// Lets other threads run, or not.
static void switch_before(run *r, uint32_t what) {
    trial *t = r->trial;
    if (t->how == PARK && what != ANYMETAL_LOAD) stop_with(r, PARKED);
    if (t->how == RANDOM && mix(&t->state) & 1) to_host();
    for (uint32_t i = 0; i < t->changes && t->how == PRIORITY; i++) {
        if (t->steps != t->change[i]) continue;
        uint32_t at = 0; // it becomes the last one
        while (t->order[at] != r->running) at++;
        memmove(t->order + at, t->order + at + 1, (ANYMETAL_MAX_THREADS - 1 - at) * sizeof *t->order);
        t->order[ANYMETAL_MAX_THREADS - 1] = (uint16_t)r->running;
        to_host();
    }
}

// An exchange succeeds: has the element changed since it was loaded, and something that was read then, too?
static void look_for_aba(run *r, const uint8_t *p, uint32_t bytes, uint64_t place, memo *m, const seen *own, const element *e) {
    for (int i = 0; i < LOADS; i++) {
        const seen *q = &m->loads[i];
        uint64_t now = 0;
        if (!q->key || q->epoch != m->epoch || q->time < own->time || q->key == own->key) continue;
        memcpy(&now, q->at, q->bytes);
        if (now == q->value) continue;
        anymetal_finding found = about(r, p, bytes, place, ANYMETAL_ABA, e);
        found.load = q->place, found.values[0] = own->value, found.values[1] = q->value, found.values[2] = now;
        find(r, found);
        return;
    }
}

// Whether a weak exchange that would succeed fails.
static uint32_t try_weak_exchange(run *r, const volatile void *p, uint32_t bytes, const void *expected, uint64_t place) {
    trial *t = r->trial;
    memo *m = &t->memos[r->thread];
    if (t->how != WEAK || memcmp((const void *)p, expected, bytes)) return 0;
    m->has_failed = !m->has_failed && !(mix(&t->state) & 3) && (!t->only || t->only == place); // never twice in a row
    for (uint32_t i = 0; i < t->failures; i++)
        if (t->failed[i] == place) return m->has_failed;
    if (m->has_failed && t->failures < PLACES) t->failed[t->failures++] = place;
    return m->has_failed;
}

static uint32_t try_operation(run *r, const uint8_t *p, uint32_t bytes, uint32_t what, const void *value, uint64_t place) {
    trial *t = r->trial;
    memo *m = &t->memos[r->running];
    uint64_t now = 0, given = 0;
    memcpy(&now, p, bytes);
    if (value) memcpy(&given, value, bytes);
    if (++t->steps > MOST_STEPS) t->is_over = 1, to_host();

    const region *of = region_at(r, p);
    const uint64_t key = key_of(r, of, p);
    const int is_again = m->key == key && m->place == place && m->value == now && r->shadow->accesses - m->accesses == 1;
    const int is_write = what == ANYMETAL_STORE || (what == ANYMETAL_COMPARE && now == given);
    m->polls = is_again && !is_write ? m->polls + 1 : 0;
    if (m->polls > MOST_POLLED || (m->polls && is_known(t, place)))
        sleep_for(r, p, bytes, place, m, &now);
    else if (!m->polls)
        switch_before(r, what), memcpy(&now, p, bytes);

    element *e = element_of(t, key);
    seen *own = loaded(m, key);
    const int is_others = e->thread != r->thread || e->group != r->group.index;
    const int has_changed = own && own->version != e->version && is_others;
    m->key = key, m->place = place, m->value = now;
    if (what == ANYMETAL_LOAD || (what == ANYMETAL_COMPARE && now != given)) {
        if (!own) own = &m->loads[m->next++ % LOADS];
        *own = (seen){p, key, now, place, e->version, m->epoch, ++m->time, bytes};
    } else {
        anymetal_finding found = {0};
        if (what == ANYMETAL_STORE && has_changed && now != own->value && now != given) {
            found = about(r, p, bytes, place, ANYMETAL_LOST_UPDATE, e);
            found.load = own->place, found.values[0] = own->value, found.values[1] = now, found.values[2] = given;
            find(r, found);
        } else if (what == ANYMETAL_STORE && has_changed && e->from == own->place && e->fed == own->value && !t->twice.kind) {
            t->twice = about(r, p, bytes, place, ANYMETAL_CHECK_THEN_ACT, e);
            t->twice.load = own->place, t->twice.values[0] = own->value, t->twice.schedule = r->schedule;
        }
        if (what == ANYMETAL_COMPARE && has_changed && now == own->value) look_for_aba(r, p, bytes, place, m, own, e);
        const int is_composed = what == ANYMETAL_STORE && own;
        *e = (element){key, place, is_composed ? own->place : 0, is_composed ? own->value : 0,
                       e->version + (what != ANYMETAL_STORE || now != given), r->group.index, r->thread, t->pass};
        if (own) own->key = 0;
        wake(r, key);
    }
    m->accesses = r->shadow->accesses;
    anymetal_bounds = m->polls > 1 ? &t->counting : &r->shadow->bounds; // are there reads between two repetitions?
    return 0;
}

// ---------------------------------------------------------------------------------------------- interleavings

static void swap_local(run *r, uint8_t *image, int is_back) {
    const anymetal_launch *l = r->launch;
    for (uint32_t i = 0; i <= l->local_count; i++) {
        uint8_t *at = i < l->local_count ? r->locals[i] : l->local;
        const uint64_t bytes = i < l->local_count ? l->locals[i].bytes : l->local_bytes;
        if (bytes) memcpy(is_back ? at : image, is_back ? image : at, bytes);
        image += bytes;
    }
}

// Makes a threadgroup the one that runs.
static void enter(run *r, uint32_t number) {
    trial *t = r->trial;
    if (t->now == number) return;
    swap_local(r, t->residents[t->now].local, 0);
    swap_local(r, t->residents[number].local, 1);
    t->now = number, r->group = t->residents[number].group, r->base = number * t->width;
}

static void mark_ready(run *r, uint32_t first, uint32_t end) {
    for (uint32_t f = first; f < end; f++)
        if (r->pool->fibres[f].state == READY) r->trial->ready[f / 64] |= UINT64_C(1) << f % 64;
}

static void make_resident(run *r, uint32_t number, uint32_t index) {
    trial *t = r->trial;
    group_begin(r, index);
    t->now = number, t->residents[number].group = r->group, r->base = number * t->width;
    swap_local(r, t->residents[number].local, 0);
    for (uint32_t i = 0; i < t->width; i++) {
        fibre_start(r, r->base + i);
        if (i >= r->group.size) r->pool->fibres[r->base + i].state = DONE;
        t->memos[r->base + i] = (memo){.epoch = 1};
    }
    mark_ready(r, r->base, r->base + t->width);
}

static uint32_t pick(trial *t, uint32_t n) {
    if (t->how == PRIORITY) {
        for (uint32_t i = 0; i < ANYMETAL_MAX_THREADS; i++)
            if (t->ready[t->order[i] / 64] >> t->order[i] % 64 & 1) return t->order[i];
        return UINT32_MAX;
    }
    const uint32_t start = (uint32_t)(mix(&t->state) % n), words = ANYMETAL_MAX_THREADS / 64;
    for (uint32_t i = 0; i <= words; i++) {
        const uint32_t w = (start / 64 + i) % words;
        const uint64_t found = t->ready[w] & (i ? ~UINT64_C(0) : ~UINT64_C(0) << start % 64);
        if (found) return w * 64 + (uint32_t)__builtin_ctzll(found);
    }
    return UINT32_MAX;
}

// Lets go on what waits with the thread of fibre f, if all have come; whether any goes on.
static int release(run *r, uint32_t f) {
    trial *t = r->trial;
    fibre *all = r->pool->fibres;
    const uint32_t end_of_group = r->base + r->group.size, first = f / ANYMETAL_SIMD_WIDTH * ANYMETAL_SIMD_WIDTH;
    const uint32_t end = first + ANYMETAL_SIMD_WIDTH < end_of_group ? first + ANYMETAL_SIMD_WIDTH : end_of_group;
    uint32_t counts[ASLEEP + 1] = {0};
    for (uint32_t i = first; i < end; i++) counts[all[i].state]++;
    if (counts[READY] + counts[PARKED] + counts[ASLEEP]) return 0;
    if (counts[AT_SIMD]) {
        simd_release(r, first);
        for (uint32_t i = first; i < end; i++) t->memos[i].epoch += all[i].state == READY && all[i].flags & ANYMETAL_IS_BARRIER;
        mark_ready(r, first, end);
        return 1;
    }
    memset(counts, 0, sizeof counts);
    for (uint32_t i = r->base; i < end_of_group; i++) counts[all[i].state]++;
    if (counts[READY] + counts[PARKED] + counts[ASLEEP] + counts[AT_SIMD] || !barrier_release(r)) return 0;
    for (uint32_t i = r->base; i < end_of_group; i++) t->memos[i].epoch++;
    mark_ready(r, r->base, end_of_group);
    return 1;
}

// All wait for what none of them does.
static void find_deadlock(run *r, uint32_t n) {
    for (uint32_t f = 0; f < n; f++) {
        if (r->pool->fibres[f].state != ASLEEP) continue;
        enter(r, f / r->trial->width);
        r->thread = f - r->base;
        anymetal_finding found = by_thread(r, ANYMETAL_WAITS);
        found.place = r->trial->memos[f].place;
        find(r, found);
        r->report->kind = ANYMETAL_FOUND;
        return;
    }
}

// Runs resident threadgroups to their end; `is_last`: there are no others.
static void run_residents(run *r, uint32_t n, int is_last) {
    trial *t = r->trial;
    while (!has_ended(r) && !t->is_over) {
        const uint32_t f = pick(t, n);
        if (f != UINT32_MAX) {
            enter(r, f / t->width);
            t->ready[f / 64] &= ~(UINT64_C(1) << f % 64);
            to_fibre(r, &r->host, f);
            if (has_ended(r) || t->is_over) return;
            if (r->pool->fibres[f].state == READY)
                t->ready[f / 64] |= UINT64_C(1) << f % 64;
            else
                release(r, f);
            continue;
        }
        int has_more = 0;
        for (uint32_t i = 0; i < n; i++)
            if (r->pool->fibres[i].state == PARKED) r->pool->fibres[i].state = READY, has_more = 1;
        mark_ready(r, 0, n);
        if (has_more) continue;
        if (t->asleep && is_last) find_deadlock(r, n);
        t->is_over |= t->asleep != 0;
        return;
    }
}

static void interleave(run *r) {
    trial *t = r->trial;
    const anymetal_launch *l = r->launch;
    const uint32_t groups = l->groups[0] * l->groups[1] * l->groups[2];
    const uint32_t most = ANYMETAL_MAX_THREADS / t->width < RESIDENT ? ANYMETAL_MAX_THREADS / t->width : RESIDENT;
    place_memory(r);
    set_links(r, 1);
    order all = make_order(mix(&t->state), groups, 0);
    for (uint32_t k = 0, g = all.start; k < groups && !has_ended(r) && !t->is_over;) {
        uint32_t n = 0;
        for (; n < most && k < groups; n++, k++, g = following(all, g)) make_resident(r, n, g);
        run_residents(r, n * t->width, k == groups);
    }
    r->base = 0;
    set_links(r, 0);
}

// ---------------------------------------------------------------------------------------------- passes

// Runs a pass on the first contents of the buffers; whether it came to its end. Its time is not that of the launch.
static int try_pass(run *r, uint32_t how, uint64_t seed, void (*pass)(run *), uint64_t limit) {
    trial *t = r->trial;
    const uint64_t now = processor_time(), deadline = r->deadline;
    t->how = how, t->state = seed, t->steps = t->asleep = t->is_over = 0, t->pass++;
    if (how == WEAK) memset(t->memos, 0, sizeof t->memos);
    memset(t->ready, 0, sizeof t->ready);
    for (uint32_t i = 0; i < r->launch->buffer_count; i++)
        if (t->results[i]) memcpy(r->buffers[i], r->launch->buffers[i].data, r->launch->buffers[i].bytes);
    if (now + limit < deadline) r->deadline = now + limit;
    r->left = 0;
    shadow *s = r->shadow;
    if (how <= SECOND) r->shadow = NULL;
    pass(r);
    r->shadow = s;
    anymetal_bounds = &r->shadow->bounds;
    const int is_late = r->ended == SIGXCPU;
    if (is_late) r->ended = 0;
    r->deadline = deadline + processor_time() - now;
    if (has_ended(r)) r->report->schedule = r->schedule;
    return !is_late && !has_ended(r) && !t->is_over;
}

// The first buffer with other contents than after the pass with checks, and where; or -1.
static int32_t differing(const run *r, int64_t *at) {
    for (uint32_t i = 0; i < r->launch->buffer_count; i++) {
        const uint8_t *first = r->trial->results[i];
        if (!first || !memcmp(first, r->buffers[i], r->launch->buffers[i].bytes)) continue;
        for (*at = 0; first[*at] == r->buffers[i][*at];) ++*at;
        return (int32_t)i;
    }
    return -1;
}

static void try_weak_exchanges(run *r, uint64_t limit) {
    trial *t = r->trial;
    anymetal_finding found = {.kind = ANYMETAL_WEAK_EXCHANGE, .group = UINT32_MAX, .thread_index = UINT32_MAX};
    if (!try_pass(r, WEAK, r->launch->seed, run_pass, limit)) return;
    found.buffer = differing(r, &found.offset), found.place = t->failed[0];
    int has_one = found.buffer < 0;
    for (uint32_t i = 0, all = t->failures; all > 1 && found.buffer >= 0 && i < all; i++) { // which of them alone?
        anymetal_finding one = found;
        t->only = one.place = t->failed[i];
        if (!try_pass(r, WEAK, r->launch->seed, run_pass, limit)) return;
        if ((one.buffer = differing(r, &one.offset)) >= 0) has_one = 1, find(r, one);
    }
    if (!has_one) find(r, found);
}

// A hash of the words of each buffer that does not depend on their places.
static void hash_contents(const run *r, uint64_t *hashes, int is_first) {
    for (uint32_t i = 0; i < r->launch->buffer_count; i++) {
        const uint8_t *data = is_first ? r->trial->results[i] : r->buffers[i];
        hashes[i] = 0;
        for (uint64_t at = 0; r->trial->results[i] && at + 4 <= r->launch->buffers[i].bytes; at += 4) {
            uint64_t word = *(const uint32_t *)(data + at);
            hashes[i] += mix(&word);
        }
    }
}

// Two threads have acted on one value. That is right if the results are then those of some order, as far as is known.
static void settle_twice(run *r, uint64_t limit) {
    uint64_t hashes[3][ANYMETAL_MAX_BUFFERS];
    int differs = 0;
    hash_contents(r, hashes[0], 1);
    hash_contents(r, hashes[1], 0);
    if (!memcmp(hashes[0], hashes[1], r->launch->buffer_count * sizeof **hashes)) return;
    r->pass = 1;
    const int is_done = try_pass(r, SECOND, 0, run_pass, limit);
    r->pass = 0;
    if (!is_done) return;
    hash_contents(r, hashes[2], 0);
    for (uint32_t i = 0; i < r->launch->buffer_count; i++)
        differs |= hashes[0][i] == hashes[2][i] && hashes[0][i] != hashes[1][i];
    if (differs) find(r, r->trial->twice);
}

static void try_schedule(run *r, uint32_t number, uint64_t limit) {
    static const uint32_t ways[] = {PARK, RANDOM, PRIORITY, RANDOM};
    trial *t = r->trial;
    uint64_t state = r->launch->seed ^ number * 0xd1b54a32d192ed03u;
    t->twice.kind = 0, t->changes = 1 + number / 4 % 3;
    for (uint32_t i = 0; i < t->changes; i++) t->change[i] = 1 + mix(&state) % r->shadow->operations;
    order ranks = make_order(state, ANYMETAL_MAX_THREADS, 0);
    for (uint32_t i = 0, f = ranks.start; i < ANYMETAL_MAX_THREADS; i++, f = following(ranks, f)) t->order[i] = (uint16_t)f;
    r->schedule = number;
    const int is_done = try_pass(r, ways[(number - 1) % 4], state, interleave, limit);
    if (is_done && t->twice.kind) settle_twice(r, limit);
    r->schedule = 0;
    r->launch->checks->tried++;
}

// After the pass with checks, whose results stay.
static void try_others(run *r) {
    const anymetal_launch *l = r->launch;
    anymetal_checks *c = l->checks;
    shadow *s = r->shadow;
    region regions[REGIONS];
    const uint64_t limit = ((processor_time() - r->began) / 2 + 50000000) * (c->schedule ? 20 : 1); // nanoseconds
    int is_unset = 0;
    for (uint32_t i = 0; i < c->count; i++) is_unset |= c->findings[i].kind == ANYMETAL_UNINITIALIZED;
    if (!c->trials || !(s->is_contended || (s->has_exchange && !is_unset))) return;
    trial *t = r->trial = calloc(1, sizeof *t);
    int is_possible = t != NULL;
    for (uint32_t i = 0; i < l->buffer_count && is_possible; i++) {
        const anymetal_buffer *b = &l->buffers[i];
        if (!b->data || memory_of(l, i) != b) continue;
        is_possible = b->file < 0 && (t->results[i] = malloc(b->bytes));
        if (is_possible) memcpy(t->results[i], r->buffers[i], b->bytes);
    }
    uint64_t local = l->local_bytes;
    for (uint32_t i = 0; i < l->local_count; i++) local += l->locals[i].bytes;
    uint8_t *images = malloc(RESIDENT * local + 1);
    for (uint32_t i = 0; i < RESIDENT && t; i++) t->residents[i].local = images + i * local;
    memcpy(regions, s->regions, sizeof regions);
    for (uint32_t i = 0; i < REGIONS; i++) s->regions[i].writers = NULL;
    for (uint32_t i = 0; i < SLOTS; i++) region_bound(s, i);
    if (is_possible && images) {
        t->width = (l->width[0] * l->width[1] * l->width[2] + ANYMETAL_SIMD_WIDTH - 1) / ANYMETAL_SIMD_WIDTH * ANYMETAL_SIMD_WIDTH;
        t->counting.arena = s->bounds.arena, t->counting.slot_bits = s->bounds.slot_bits;
        if (s->has_exchange && !is_unset && !c->schedule) try_weak_exchanges(r, limit);
        for (uint32_t k = c->schedule ? c->schedule : 1; s->is_contended && k <= (c->schedule ? c->schedule : c->trials) && !has_ended(r); k++)
            try_schedule(r, k, limit);
    }
    memcpy(s->regions, regions, sizeof regions);
    for (uint32_t i = 0; i < l->buffer_count && t; i++) {
        if (t->results[i]) memcpy(r->buffers[i], t->results[i], l->buffers[i].bytes);
        free(t->results[i]);
    }
    free(t);
    free(images);
    r->trial = NULL;
}
