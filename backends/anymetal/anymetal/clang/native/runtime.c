// The launcher: guarded memory, one fibre a thread, barriers, simdgroups, a limit of time, and the report of what a
// kernel did wrong.
//
// Compiled once per machine, without fast math, into a library of its own, whose functions compiled kernels call by
// name (abi.h). All state of a launch lives in a `run` that the launching OS thread owns, so launches in several threads
// do not meet; the only shared state is the list of idle fibre stacks, which is lock-free.
#define _GNU_SOURCE
#define _DARWIN_C_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "anymetal/abi.h"
#include "fibre.h"
#include "memory.h"
#include "watch.h"
#include "bounds.h"
#include "shadow.h"

enum { READY, AT_SIMD, AT_BARRIER, DONE };

typedef struct {
    void *stack_pointer;
    uint32_t state, bytes, flags;
    anymetal_site at; // where it waits, or waited last
    uint8_t post[ANYMETAL_SIMD_BYTES]; // the value this lane brings to a simdgroup function
} fibre;

typedef struct {
    uint32_t start, step, size; // visits (start + k * step) mod size for k = 0 .. size-1; step and size are coprime
} order;

// Records and, behind them, stacks for every thread of a threadgroup; kept between launches, because mapping them takes
// a millisecond.
typedef struct {
    fibre fibres[ANYMETAL_MAX_THREADS];
    anymetal_exchange exchanges[ANYMETAL_MAX_THREADS / ANYMETAL_SIMD_WIDTH];
    uint8_t signal_stack[65536];
    uint8_t *stacks;
    shadow *shadow; // an idle one, or NULL
} pool;

typedef struct trial trial; // trial.h

typedef struct {
    const anymetal_launch *launch;
    anymetal_report *report;
    pool *pool;
    void *host; // stack pointer of the launching thread while a fibre runs
    anymetal_group group;
    uint8_t *buffers[ANYMETAL_MAX_BUFFERS]; // the memory of this pass
    uint8_t *locals[ANYMETAL_MAX_LOCALS];
    void *bound[ANYMETAL_MAX_BUFFERS]; // what the kernel gets: at an offset of the memory
    uint8_t missing, missing_there; // the bytes of what a lane holds that brought no value; the second at `missing_at`
    anymetal_site missing_at;
    shadow *shadow; // in a pass with checks
    trial *trial;   // in one of those after it
    uint32_t operations;     // in the shadow when a worker began
    uint32_t schedule, base; // its number; the fibre of thread 0, of several threadgroups at once
    uint32_t running, thread, pass, at; // the fibre, the thread of its threadgroup, and how many of these are done
    order lanes; // of the simdgroup that runs: from `first` on; `left` of them have not had their turn, `lane` is next
    uint32_t first, lane, left;
    uint32_t workers, worker, has_failed; // see spread.h; worker: 0 for the parent
    struct common *common; // of the parent and its children
    uint64_t common_bytes;
    int children[250];
    uint32_t child_count;
    uint8_t *pages[ANYMETAL_MAX_BUFFERS], *claims[ANYMETAL_MAX_BUFFERS], *reached;
    uint64_t began, deadline; // in processor time of the thread: this pass, the launch
    volatile sig_atomic_t is_due; // whether it is time to look whether the launch is long
    volatile sig_atomic_t ended; // the signal that ended the launch, or 0
    uint64_t trace[8]; // where in the kernel it was then, see anymetal_report
} run;

#ifdef __GLIBC__ // checks read it at each access
#define NEAR __attribute__((tls_model("initial-exec")))
#else
#define NEAR
#endif
static _Thread_local NEAR run *current;
_Thread_local NEAR const bounds *anymetal_bounds;
static const bounds no_bounds; // of a pass without checks: all reads are told, and ignored

static inline int has_ended(const run *r) { return r->report->kind || r->ended; }

// ---------------------------------------------------------------------------------------------- orders

static uint64_t mix(uint64_t *state) { // splitmix64
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t gcd(uint32_t a, uint32_t b) {
    while (b) { uint32_t r = a % b; a = b; b = r; }
    return a;
}

// A pseudo-random order; `reversed` gives exactly the opposite one, so that any two items swap their turns.
static order make_order(uint64_t seed, uint32_t size, uint32_t reversed) {
    order o = {0, 1, size};
    if (size == 1) return o;
    do o.step = (uint32_t)(mix(&seed) % (size - 1)) + 1; while (gcd(o.step, size) != 1);
    o.start = (uint32_t)(mix(&seed) % size);
    if (reversed) {
        o.start = (uint32_t)((o.start + (uint64_t)(size - 1) * o.step) % size);
        o.step = size - o.step;
    }
    return o;
}

static inline uint32_t following(order o, uint32_t item) {
    uint32_t room = o.size - item; // avoids a 32-bit overflow of item + step
    return o.step < room ? item + o.step : o.step - room;
}

// ---------------------------------------------------------------------------------------------- stacks

static pool *_Atomic idle[16];

static inline uint64_t stack_pitch(void) { return ANYMETAL_STACK_BYTES + page_size(); }

static uint64_t stacks_bytes(void) { return stack_pitch() * ANYMETAL_MAX_THREADS; }

static uint64_t pool_bytes(void) { return round_up(sizeof(pool), page_size()) + stacks_bytes(); }

static pool *pool_new(void) {
    pool *p = mmap(NULL, pool_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    p->stacks = (uint8_t *)p + round_up(sizeof *p, page_size());
    for (uint32_t t = 0; t < ANYMETAL_MAX_THREADS; t++) mprotect(p->stacks + t * stack_pitch(), page_size(), PROT_NONE);
    return p;
}

static pool *pool_take(void) {
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) {
        pool *p = __c11_atomic_exchange(&idle[i], NULL, __ATOMIC_ACQUIRE);
        if (p) return p;
    }
    return pool_new();
}

static void pool_give(pool *p) {
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) {
        pool *none = NULL;
        if (__c11_atomic_compare_exchange_strong(&idle[i], &none, p, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return;
    }
    if (p->shadow) shadow_end(p->shadow, stacks_bytes());
    munmap(p, pool_bytes());
}

// ---------------------------------------------------------------------------------------------- fibres

static inline void *to_host(void) {
    run *r = current;
    return fibre_switch(&r->pool->fibres[r->running].stack_pointer, r->host, NULL);
}

static inline void *to_fibre(run *r, void **save, uint32_t t) {
    r->running = t, r->thread = t - r->base;
    if (r->shadow) shadow_thread(r->shadow, r->thread), r->shadow->stack = r->pool->stacks + t * stack_pitch();
    return fibre_switch(save, r->pool->fibres[t].stack_pointer, &r->pool->exchanges[t / ANYMETAL_SIMD_WIDTH]);
}

// The next lane of the simdgroup that may run; UINT32_MAX if there is none.
static inline uint32_t next_lane(run *r) {
    while (r->left) {
        const uint32_t t = r->first + r->lane;
        r->left--, r->lane = following(r->lanes, r->lane);
        if (r->pool->fibres[t].state == READY) return t;
    }
    return UINT32_MAX;
}

static void plain_groups(run *r);
static int is_interleaved(const run *r);
static void trial_thread(run *r);

static void fibre_main(void) {
    run *r = current;
    if (is_interleaved(r))
        trial_thread(r);
    else if (r->launch->synchronizes)
        r->launch->run_thread(&r->group, r->running);
    else
        plain_groups(r);
    r->pool->fibres[r->running].state = DONE;
    to_host();
    __builtin_trap();
}

static void fibre_start(run *r, uint32_t t) {
    fibre *f = &r->pool->fibres[t];
    f->state = READY;
    f->at = (anymetal_site){0};
    f->stack_pointer = fibre_prepare(r->pool->stacks + (t + 1) * stack_pitch(), fibre_main);
}

// Leaves the kernel for good; the abandoned stacks are reset by the next launch.
static void abandon(run *r) {
    r->pool->fibres[r->running].state = DONE;
    to_host();
}

// The order of two places in the source; 0 for the same. The files of a library are strings of their own.
static int compare(const anymetal_site *a, const anymetal_site *b) {
    if (a->line != b->line) return a->line < b->line ? -1 : 1;
    if (a->column != b->column) return a->column < b->column ? -1 : 1;
    return a->file == b->file ? 0 : a->file < b->file ? -1 : 1;
}

#include "checked.h"

// Stops this thread, and goes on with the next lane of its simdgroup. It and its callers end in the switch itself, so
// that no return comes after it.
static inline void *wait_at(uint32_t state, anymetal_site here) {
    run *r = current;
    if (r->shadow) settle(r);
    fibre *f = &r->pool->fibres[r->running];
    f->state = state;
    f->at = here;
    const uint32_t next = has_ended(r) ? UINT32_MAX : next_lane(r);
    return next == UINT32_MAX ? to_host() : to_fibre(r, &f->stack_pointer, next);
}

void anymetal_barrier(uint32_t flags, anymetal_site here) {
    current->pool->fibres[current->running].flags = flags;
    wait_at(AT_BARRIER, here);
}

uint32_t anymetal_thread_index(void) { return current->thread; }

const anymetal_exchange *anymetal_exchange_values(const void *value, uint32_t bytes, uint32_t flags, anymetal_site here) {
    run *r = current;
    fibre *f = &r->pool->fibres[r->running];
    f->bytes = bytes;
    f->flags = flags;
    memcpy(f->post, value, bytes);
    return wait_at(AT_SIMD, here);
}

void anymetal_out_of_bounds(int64_t index, uint64_t length, anymetal_site here) {
    run *r = current;
    anymetal_report found = {.kind = ANYMETAL_ARRAY, .offset = index, .count = (uint32_t)length, .others = r->thread, .group = r->group.index, .at = here};
    *r->report = found;
    abandon(r);
}

// A record has few bits for clocks: a launch ends before one of them overflows.
static int has_clocks_left(run *r, uint32_t simdgroup, const anymetal_site *place) {
    if (r->shadow->clock[simdgroup] < MOST_CLOCK) return 1;
    anymetal_finding found = by_thread(r, ANYMETAL_MANY_BARRIERS);
    found.at = *place;
    find(r, found);
    r->report->kind = ANYMETAL_FOUND;
    return 0;
}

// A function of lanes whose argument has to be the same in all of them, or in the four of a quadgroup.
static void compare_arguments(run *r, uint32_t first, uint32_t active, anymetal_site place) {
    const fibre *f = &r->pool->fibres[first], *one = NULL;
    for (uint32_t lane = 0; lane < ANYMETAL_SIMD_WIDTH; lane++) {
        if (one && one->flags & ANYMETAL_IS_QUAD && lane % 4 == 0) one = NULL;
        if (!(active >> lane & 1)) continue;
        if (!one) one = &f[lane];
        if (one->flags == f[lane].flags) continue;
        r->thread = first + lane - r->base;
        anymetal_finding found = by_thread(r, ANYMETAL_NOT_UNIFORM);
        found.at = place, found.values[0] = f[lane].flags >> 8, found.values[1] = one->flags >> 8;
        found.other_thread = (uint32_t)(one - f) + first - r->base, found.other_group = r->group.index;
        find(r, found);
        return;
    }
}

// Lets the waiting lanes of one simdgroup go on. Lanes that wait at different places have diverged: the ones that are
// furthest behind in the source go first, as they would on hardware that reconverges. Returns whether any did.
static int simd_release(run *r, uint32_t first) {
    fibre *f = r->pool->fibres;
    const uint32_t end_of_group = r->base + r->group.size;
    uint32_t end = first + ANYMETAL_SIMD_WIDTH < end_of_group ? first + ANYMETAL_SIMD_WIDTH : end_of_group;
    const anymetal_site *place = NULL;
    uint32_t bytes = 0, flags = 0;
    for (uint32_t t = first; t < end; t++) {
        if (f[t].state == AT_SIMD && (!place || compare(&f[t].at, place) <= 0))
            place = &f[t].at, bytes = f[t].bytes > bytes ? f[t].bytes : bytes;
    }
    if (!place) return 0;
    anymetal_exchange *x = &r->pool->exchanges[first / ANYMETAL_SIMD_WIDTH];
    x->active = 0;
    const int missing = r->missing_at.file && !compare(&r->missing_at, place) ? r->missing_there : r->missing;
    memset(x->value[ANYMETAL_SIMD_WIDTH], missing, bytes);
    for (uint32_t t = first; t < first + ANYMETAL_SIMD_WIDTH; t++) {
        if (t >= end || f[t].state != AT_SIMD || compare(&f[t].at, place)) {
            memset(x->value[t - first], missing, bytes); // it is undefined
            continue;
        }
        x->active |= 1u << (t - first);
        memcpy(x->value[t - first], f[t].post, bytes);
        f[t].state = READY;
        flags = f[t].flags;
    }
    if (flags & ANYMETAL_IS_UNIFORM && r->shadow) compare_arguments(r, first, x->active, *place);
    if (!r->shadow || r->trial || !(flags & ANYMETAL_IS_BARRIER)) return 1;
    const uint32_t here = (uint32_t)__builtin_popcount(x->active);
    shadow_simd_barrier(r->shadow, first / ANYMETAL_SIMD_WIDTH, flags, *place);
    if (here < end - first) {
        anymetal_finding found = by_thread(r, ANYMETAL_LANES_DIVERGED);
        found.offset = here, found.bytes = end - first, found.at = *place;
        find(r, found);
    }
    return has_clocks_left(r, first / ANYMETAL_SIMD_WIDTH, place);
}

// All threads must stand at the same barrier. Returns whether they may go on: not if all are done, or after a report.
static int barrier_release(run *r) {
    fibre *f = r->pool->fibres + r->base;
    uint32_t n = r->group.size, waiting = 0, elsewhere = 0;
    const fibre *at = NULL, *other = NULL;
    for (uint32_t t = 0; t < n; t++) {
        if (f[t].state == DONE) continue;
        if (!at) at = &f[t];
        if (!compare(&f[t].at, &at->at))
            waiting++;
        else
            elsewhere++, other = &f[t];
    }
    if (!at) return 0;
    if (waiting < n) {
        anymetal_report found = {.kind = ANYMETAL_DIVERGENCE, .group = r->group.index, .count = waiting, .at = at->at,
                               .others = elsewhere, .other = other ? other->at : at->at};
        *r->report = found;
        return 0;
    }
    for (uint32_t t = 0; t < n; t++) f[t].state = READY;
    if (!r->shadow || r->trial) return 1;
    shadow_barrier(r->shadow, at->flags, at->at);
    return has_clocks_left(r, 0, &at->at);
}

// ---------------------------------------------------------------------------------------------- messages

// Prints a message to stderr, in the first pass: vectors (%v4f) are so many numbers, and a value of another kind than
// its conversion is printed as what it is.
void anymetal_log(uint32_t level, const char *format, const anymetal_item *items, uint32_t count) {
    static const char *const names[] = {"", " debug", " info", " error", " fault"};
    char text[1024], one[32];
    size_t at = 0;
    run *r = current;
    if (r->worker) r->report->kind = ANYMETAL_FOUND; // the parent runs it, too, and prints
    if (r->worker || r->pass || r->trial) return;
    for (uint32_t k = 0; *format && at < sizeof text - 1;) {
        if (*format != '%' || format[1] == '%') {
            text[at++] = *format, format += 1 + (*format == '%');
            continue;
        }
        uint32_t size = 1, lanes = 1;
        for (one[0] = *format++; *format && strchr("-+ #0123456789.hlv", *format); format++) {
            if (*format == 'v')
                lanes = (uint32_t)strtoul(format + 1, (char **)&format, 10), format--;
            else if (*format != 'h' && *format != 'l' && size < sizeof one - 4)
                one[size++] = *format;
        }
        const char given = *format ? *format++ : 'd', kind = strchr("diouxXceEfFgGaAs", given) ? given : 'd';
        const char as = strchr("eEfFgGaA", kind) ? 'f' : kind == 's' ? 's' : 'd';
        for (uint32_t i = 0; i < lanes && at < sizeof text - 1; i++) {
            const anymetal_item none = {.text = "(missing)", .kind = 's'}, item = k < count ? items[k] : none;
            const char shown = item.kind == (uint32_t)as ? kind : item.kind == 'f' ? 'g' : (char)item.kind;
            k++;
            snprintf(one + size, sizeof one - size, "%s%c", item.kind == 'd' && shown != 'c' ? "ll" : "", shown);
            const size_t left = sizeof text - at;
            const int n = item.kind == 'f'   ? snprintf(text + at, left, one, item.number)
                          : item.kind == 's' ? snprintf(text + at, left, one, item.text)
                          : shown == 'c'     ? snprintf(text + at, left, one, (int)item.integer)
                                             : snprintf(text + at, left, one, (long long)item.integer);
            at = n < 0 ? at : at + (size_t)n < sizeof text ? at + (size_t)n : sizeof text - 1;
            if (i + 1 < lanes && at < sizeof text - 1) text[at++] = ',';
        }
    }
    text[at] = 0;
    const anymetal_group *g = &r->group;
    fprintf(stderr, "log%s, thread %u of threadgroup %u: %s\n", names[level], r->thread, g->index, text);
}

// ---------------------------------------------------------------------------------------------- groups

// The first buffer with the memory of buffer i: a launch may bind one several times.
static const anymetal_buffer *memory_of(const anymetal_launch *l, uint32_t i) {
    const anymetal_buffer *b = l->buffers;
    while (b->data != l->buffers[i].data) b++;
    return b;
}

enum { SIGNALS = 6 };
static const int signals[SIGNALS] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGXCPU, SIGINT};

static void take_copies(run *r) {
    for (uint32_t i = 0; i < r->launch->buffer_count; i++) r->buffers[i] = memory_of(r->launch, i)->copy;
}

#include "spread.h"

static uint64_t group_seed(const run *r) {
    return r->launch->seed ^ (r->group.index + 1) * 0xd1b54a32d192ed03u;
}

// The bytes of a region from `at` on that were written last, or nothing wrote if they are of a buffer, and nothing read.
static uint64_t unread(const region *m, uint64_t at, uint64_t bytes) {
    uint64_t found = 0;
    for (uint64_t u = at >> m->unit_bits; u << m->unit_bits < at + bytes; u++)
        found += !m->writers[u] != (m->space == LOCAL_MEMORY) && !(m->is_read && m->readers[u]);
    return found << m->unit_bits;
}

// Of the threadgroup that ends.
static void count_unread_local(run *r) {
    anymetal_checks *c = r->launch->checks;
    region *m = &r->shadow->regions[VARIABLES];
    if (!c->counts_unread) return;
    for (uint32_t i = 0; i < c->variable_count && m->writers; i++)
        c->variables[i].unread += unread(m, c->variables[i].at, c->variables[i].bytes);
    for (uint32_t i = 0; i < r->launch->local_count; i++) {
        m = &r->shadow->regions[ANYMETAL_MAX_BUFFERS + i];
        if (m->writers) r->launch->locals[i].unread += unread(m, 0, m->bytes);
    }
}

static void group_begin(run *r, uint32_t index) {
    const anymetal_launch *l = r->launch;
    anymetal_group *g = &r->group;
    g->index = index;
    g->size = 1;
    for (uint32_t i = 0, rest = index; i < 3; rest /= l->groups[i], i++) {
        g->position[i] = rest % l->groups[i];
        g->origin[i] = g->position[i] * l->width[i];
        uint64_t left = l->grid[i] - (uint64_t)g->position[i] * l->width[i];
        g->extent[i] = left < l->width[i] ? (uint32_t)left : l->width[i];
        g->size *= g->extent[i];
    }
    if (r->shadow && !r->trial && !r->pass) count_unread_local(r);
    fill_uninitialised(l->local, l->local_bytes, r->pass);
    for (uint32_t i = 0; i < l->local_count; i++) fill_uninitialised(r->locals[i], l->locals[i].bytes, r->pass);
    if (r->shadow) shadow_group(r->shadow, index);
}

static order group_order(const run *r) {
    const uint32_t *n = r->launch->groups;
    return make_order(r->launch->seed, n[0] * n[1] * n[2], r->pass);
}

static void plain_groups(run *r) {
    order groups = group_order(r);
    for (uint32_t k = 0, g = groups.start; k < groups.size && !has_ended(r); k++, g = following(groups, g)) {
        if (r->is_due) r->at = k, to_host();
        if (is_others(r, g, groups.size)) continue;
        group_begin(r, g);
        order threads = make_order(group_seed(r), r->group.size, r->pass);
        for (uint32_t j = 0, t = threads.start; j < threads.size; j++, t = following(threads, t)) {
            r->thread = t;
            if (r->shadow) shadow_thread(r->shadow, t);
            r->launch->run_thread(&r->group, t);
        }
    }
}

// A simdgroup runs to its next threadgroup barrier before the next one starts. Nothing else orders two simdgroups, so a
// barrier of a simdgroup does not either.
static void fibre_group(run *r) {
    const uint32_t n = r->group.size, width = ANYMETAL_SIMD_WIDTH;
    const order simdgroups = make_order(group_seed(r), (n + width - 1) / width, r->pass);
    const order full = make_order(group_seed(r), width, r->pass);
    const order last = make_order(group_seed(r), (n - 1) % width + 1, r->pass);
    for (uint32_t t = 0; t < n; t++) fibre_start(r, t);
    do {
        for (uint32_t k = 0, s = simdgroups.start; k < simdgroups.size; k++, s = following(simdgroups, s)) {
            const uint32_t first = s * width;
            r->first = first, r->lanes = n - first < width ? last : full;
            do {
                r->lane = r->lanes.start, r->left = r->lanes.size;
                for (uint32_t t; (t = next_lane(r)) != UINT32_MAX;) {
                    to_fibre(r, &r->host, t);
                    if (has_ended(r)) return;
                }
            } while (simd_release(r, first));
        }
    } while (barrier_release(r));
}

// Threadgroup memory of a parameter ends at a protected page in the first pass, and begins at one in the second.
static void place_memory(run *r) {
    const anymetal_launch *l = r->launch;
    for (uint32_t i = 0; i < l->buffer_count; i++) r->bound[i] = r->buffers[i] + l->buffers[i].offset;
    for (uint32_t i = 0; i < l->local_count && !r->shadow && !r->trial; i++) {
        const anymetal_local_memory *m = &l->locals[i];
        if (!m->bytes) continue;
        r->locals[i] = m->pages;
        if (r->pass)
            guard_repair(m->pages, m->bytes);
        else
            r->locals[i] = guarded_place(m->pages, round_up(m->bytes, page_size()), m->bytes);
    }
}

// The pointers in buffers, which are null outside of a pass.
static void set_links(run *r, int are_set) {
    for (uint32_t i = 0; i < r->launch->link_count; i++) {
        const anymetal_link *l = &r->launch->links[i];
        uint8_t *address = are_set ? r->buffers[l->target] + l->at : NULL;
        memcpy(r->buffers[l->buffer] + l->offset, &address, sizeof address);
    }
}

static void run_groups(run *r) {
    const anymetal_launch *l = r->launch;
    if (!l->synchronizes) {
        fibre_start(r, 0);
        do to_fibre(r, &r->host, 0); while (r->pool->fibres[0].state == READY && !spread(r, r->at));
        return;
    }
    order groups = group_order(r);
    for (uint32_t k = 0, g = groups.start; k < groups.size && !has_ended(r); k++, g = following(groups, g)) {
        if (r->is_due && spread(r, k)) return;
        if (is_others(r, g, groups.size)) continue;
        group_begin(r, g);
        fibre_group(r);
    }
}

static void run_pass(run *r) {
    place_memory(r);
    set_links(r, 1);
    r->is_due = r->launch->spreads_at_once;
    run_groups(r);
    if (r->worker) worker_end(r);
    set_links(r, 0);
}

#include "trial.h"

// ---------------------------------------------------------------------------------------------- faults

static struct sigaction previous[SIGNALS];

static uint32_t is_write(void *context) {
#if defined(__linux__) && defined(__x86_64__)
    return (((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) ? 2 : 1; // bit 1 of the page fault's error code
#else
    (void)context;
    return 0; // not known
#endif
}

// Linux on x86-64 reports a vector at an address that is not aligned in this way, without the address.
static int is_misaligned(const siginfo_t *info) {
#if defined(__linux__) && defined(__x86_64__)
    return info->si_signo == SIGSEGV && info->si_code == SI_KERNEL;
#else
    return info->si_signo == SIGBUS && info->si_code == BUS_ADRALN;
#endif
}

static int is_near(const uint8_t *address, const uint8_t *data, uint64_t bytes) {
    return data && address >= data - ANYMETAL_GUARD && address < data + bytes + ANYMETAL_GUARD;
}

// Finds the return addresses into the kernel on the stack of the fibre that was interrupted, at most 8; returns whether
// it was one.
static int trace(const run *r, const void *context, uint64_t *found) {
    const uint8_t *at = interrupted_at(context), *stacks = r->pool->stacks;
    const anymetal_checks *c = r->launch->checks;
    const int is_fibre = at >= stacks && at < stacks + stack_pitch() * ANYMETAL_MAX_THREADS;
    if (!c) return is_fibre;
    const uint8_t *stack = stacks + (is_fibre ? (uint64_t)(at - stacks) / stack_pitch() * stack_pitch() : 0);
    const uint8_t *end = is_fibre ? stack + stack_pitch() : at;
    if (is_fibre && at < stack + page_size()) at = stack + page_size(); // it has reached the guard
    uint64_t code = program_counter(context) + 1 - c->code;
    for (int n = 0;; code = *(const uint64_t *)at - c->code, at += 8) {
        if (code < c->code_bytes) found[n++] = code;
        if (at >= end || n == 8) return is_fibre;
    }
}

// Ends the launch, or this worker, whose threadgroups the parent then runs itself. Returns if it was on the stack of the
// host, whose registers are not saved by then: that is no fault of the kernel.
static void report_fault(run *r, int number, const siginfo_t *info, void *context) {
    if (r->worker) _exit(1);
    const uint8_t *address = info->si_addr;
    anymetal_report found = {.kind = ANYMETAL_FAULT, .buffer = -1, .count = (uint32_t)number, .others = is_write(context)};
    const uint64_t behind = (uint64_t)(address - r->pool->stacks);
    if (behind < stack_pitch() * ANYMETAL_MAX_THREADS && behind % stack_pitch() < page_size()) found.offset = 2;
    if (is_misaligned(info)) found.offset = 1, address = NULL;
    if (!trace(r, context, found.trace)) return;
    for (uint32_t i = 0; i < r->launch->buffer_count; i++)
        if (is_near(address, r->buffers[i], r->launch->buffers[i].bytes))
            found.buffer = (int32_t)i, found.offset = address - r->buffers[i];
    for (uint32_t i = 0; i < r->launch->local_count; i++)
        if (is_near(address, r->locals[i], r->launch->locals[i].bytes))
            found.buffer = (int32_t)(ANYMETAL_MAX_BUFFERS + i), found.offset = address - r->locals[i];
    *r->report = found;
    abandon(r);
}

// Ends the launch: at once if the signal came on the stack of a fibre, since that of the host is saved by then, else at
// the next tick, or where the host sees `ended`.
static void end_launch(run *r, int number, void *context) {
    if (!r->ended) r->ended = number;
    if (trace(r, context, r->trace)) abandon(r);
}

static void on_signal(int number, siginfo_t *info, void *context) {
    run *r = current;
    const int is_fault = number != SIGXCPU && number != SIGINT;
    if (r && is_fault) report_fault(r, number, info, context);
    if (number == SIGXCPU && r && (r->ended || processor_time() >= r->deadline)) {
        end_launch(r, r->ended ? r->ended : number, context);
        return;
    }
    if (number == SIGXCPU && is_tick(info, r)) {
        if (r) r->is_due = 1;
        return;
    }
    struct sigaction *old = NULL;
    for (int i = 0; i < SIGNALS; i++)
        if (signals[i] == number) old = &previous[i];
    if (old->sa_flags & SA_SIGINFO) {
        old->sa_sigaction(number, info, context);
    } else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) {
        old->sa_handler(number);
    } else if (is_fault || old->sa_handler == SIG_DFL) {
        signal(number, SIG_DFL); // on return a fault happens again and takes its usual course
        if (!is_fault || info->si_code <= 0) raise(number); // no fault: another process has sent it
    }
    if (r && number == SIGINT) end_launch(r, number, context);
}

static int is_ours(const struct sigaction *action) {
    return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == on_signal;
}

// Others (Python's faulthandler) may have taken the signals since the last launch, so this looks each time. An
// interrupt from the keyboard is for the main thread, and ours only while a launch runs there. Returns whether it is.
static int catch_signals(void) {
    struct sigaction now, ours = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART};
    ours.sa_sigaction = on_signal;
    for (int i = 0; i < SIGNALS; i++) {
        sigaction(signals[i], NULL, &now);
        const int is_ignored = !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_IGN;
        if (signals[i] == SIGINT && (is_ignored || !is_main_thread())) return 0;
        if (is_ours(&now)) continue;
        sigaction(signals[i], &ours, &now);
        if (!is_ours(&now)) previous[i] = now;
    }
    return 1;
}

static void release_interrupt(void) {
    struct sigaction now;
    sigaction(SIGINT, NULL, &now);
    if (is_ours(&now)) sigaction(SIGINT, &previous[SIGNALS - 1], NULL);
}

// ---------------------------------------------------------------------------------------------- launch

static void check_guard(run *r, int32_t number, uint8_t *data, uint64_t bytes) {
    int64_t at;
    if (!data || !guard_damaged(data, bytes, &at)) return;
    anymetal_report found = {.kind = ANYMETAL_GUARD_DAMAGED, .buffer = number, .offset = at};
    if (!r->report->kind) *r->report = found;
    guard_repair(data, bytes);
}

static void check_guards(run *r) {
    const anymetal_launch *l = r->launch;
    for (uint32_t i = 0; i < l->buffer_count; i++) // what is behind the end of a file on its last page is no guard
        if (l->buffers[i].file < 0) check_guard(r, (int32_t)i, r->buffers[i], l->buffers[i].bytes);
    for (uint32_t i = 0; i < l->local_count; i++)
        check_guard(r, (int32_t)(ANYMETAL_MAX_BUFFERS + i), r->locals[i], l->locals[i].bytes);
}

// Copies the buffers into the arena of a shadow; 0 when there is no memory.
static int watch_memory(run *r) {
    const anymetal_launch *l = r->launch;
    shadow *s = r->shadow;
    for (uint32_t i = 0; i < l->buffer_count; i++) {
        const anymetal_buffer *b = &l->buffers[i], *first = memory_of(l, i);
        region *m = &s->regions[first - l->buffers];
        if (!b->data) continue; // not bound
        if (b == first) {
            if (!region_open(s, i, b->bytes, b->file)) return 0;
            if (b->file < 0) memcpy(m->data, b->data, b->bytes);
            m->is_writable = 0, m->is_undefined = b->undefined, m->space = b->is_texture ? TEXTURE_MEMORY : DEVICE_MEMORY;
            m->unit_bits = b->unit == 1 ? 0 : b->unit == 2 ? 1 : 2;
        }
        m->is_writable |= b->writable;
        if ((m->is_writable || m->is_undefined || l->checks->counts_unread) && !m->writers && !region_watch(s, m)) return 0;
        r->buffers[i] = m->data;
    }
    for (uint32_t i = 0; i < l->local_count; i++) {
        if (!l->locals[i].bytes) continue;
        if (!region_open(s, ANYMETAL_MAX_BUFFERS + i, l->locals[i].bytes, -1)) return 0;
        r->locals[i] = s->regions[ANYMETAL_MAX_BUFFERS + i].data;
    }
    s->regions[VARIABLES] = (region){.data = l->local, .bytes = l->local_bytes, .is_writable = 1, .unit_bits = 2};
    for (uint32_t i = ANYMETAL_MAX_BUFFERS; i < REGIONS; i++) {
        region *m = &s->regions[i];
        m->space = LOCAL_MEMORY, m->is_undefined = 1;
        if (m->bytes && !region_watch(s, m)) return 0;
    }
    for (uint32_t i = 0; i < SLOTS; i++) region_bound(s, i);
    return 1;
}

static void close_arena(const run *r, shadow *s) {
    if (!s) return;
    for (uint32_t i = 0; i < REGIONS; i++) region_close(s, &s->regions[i]);
    if (s->arena) munmap(s->arena, arena_bytes());
    if (r->pool->shadow || s->has_unset || s->has_ended) { // its stacks are not like new
        shadow_end(s, stacks_bytes());
    } else {
        shadow_clear(s);
        r->pool->shadow = s;
    }
}

static void count_unread(run *r) {
    for (uint32_t i = 0; i < r->launch->buffer_count && r->launch->checks->counts_unread; i++) {
        const region *m = &r->shadow->regions[i];
        if (m->writers) r->launch->buffers[i].unread = unread(m, 0, m->bytes);
    }
    count_unread_local(r);
}

// Runs the kernel with checks on copies of the buffers, which it returns in the arena of a shadow: the buffers stay as
// they are. NULL if there is no memory.
static shadow *run_checked(run *r) {
    const anymetal_launch *l = r->launch;
    shadow *s = r->shadow = r->pool->shadow ? r->pool->shadow : shadow_new(stacks_bytes());
    r->pool->shadow = NULL;
    if (s) s->code = l->checks->code;
    const int is_open = s && arena_open(s) && watch_memory(r);
    if (is_open) {
        anymetal_bounds = &s->bounds;
        run_pass(r);
        settle(r);
        if (!r->pass) count_unread(r);
        if (!has_ended(r) && !r->pass) try_others(r);
        anymetal_bounds = &no_bounds;
    } else {
        r->report->kind = ANYMETAL_MEMORY;
    }
    r->shadow = NULL;
    for (uint32_t i = 0; i < l->local_count; i++) r->locals[i] = NULL; // it was in the arena
    for (uint32_t i = 0; i < l->buffer_count; i++) r->buffers[i] = l->buffers[i].data;
    if (is_open) return s;
    close_arena(r, s);
    return NULL;
}

// The memory of a buffer after a pass with checks; NULL if that is the buffer's own.
static const uint8_t *result(const run *r, const shadow *s, uint32_t i) {
    const anymetal_buffer *b = memory_of(r->launch, i);
    return s && b->file < 0 && s->regions[b - r->launch->buffers].is_result ? s->regions[b - r->launch->buffers].data : NULL;
}

// Says what a pass with checks wrote, and gives the records of the accesses back.
static void count_written(run *r, shadow *s) {
    for (uint32_t i = 0; i < r->launch->buffer_count; i++) {
        anymetal_buffer *b = &r->launch->buffers[i];
        region *m = &s->regions[i];
        b->is_read = s->regions[memory_of(r->launch, i) - r->launch->buffers].is_read;
        if (!m->writers || b->file >= 0) continue;
        b->written = m->written < b->bytes ? m->written : b->bytes;
        uint64_t at = b->offset; // of what is written without a gap
        while (at < b->offset + b->written && at < b->bytes && m->writers[at >> m->unit_bits]) at += 1u << m->unit_bits;
        const int is_used = m->is_read && at < b->bytes && m->readers[at >> m->unit_bits]; // what comes next
        b->covered = is_used ? 0 : at - b->offset;
        region_close(s, m);
        m->is_result = 1;
    }
}

// The first pass; with checks it returns where the results are.
static shadow *run_once(run *r) {
    shadow *s = NULL;
    if (r->launch->checks)
        s = run_checked(r);
    else
        run_pass(r);
    check_guards(r);
    if (s && !has_ended(r)) count_written(r, s);
    return s;
}

// Takes the results, those of the checked pass from its arena or, after another one, from the copies of the buffers.
static void take_results(run *r, shadow *s, int are_copied) {
    const int is_complete = !r->ended && (!r->report->kind || r->report->kind == ANYMETAL_ORDER);
    for (uint32_t i = 0; i < r->launch->buffer_count && is_complete; i++) {
        const anymetal_buffer *b = &r->launch->buffers[i];
        if (b == memory_of(r->launch, i) && result(r, s, i)) memcpy(b->data, are_copied ? b->copy : result(r, s, i), b->bytes);
    }
    close_arena(r, s);
}

// The opposite order with checks, after a pass without them that ended in another way than the first order.
static void check_opposite(run *r, shadow *s) {
    const anymetal_report before = *r->report;
    for (uint32_t i = 0; i < r->launch->buffer_count; i++) {
        const anymetal_buffer *b = &r->launch->buffers[i];
        r->buffers[i] = b->data;
        if (b == memory_of(r->launch, i) && result(r, s, i)) memcpy(b->copy, result(r, s, i), b->bytes);
    }
    munmap(s->arena, arena_bytes()), s->arena = NULL;
    r->report->kind = 0, r->began = processor_time();
    close_arena(r, run_checked(r));
    if (r->ended == SIGXCPU || r->report->kind == ANYMETAL_MEMORY) {
        *r->report = before, r->ended = 0;
        if (before.kind == ANYMETAL_ORDER) r->report->others = 1;
    } else if (!r->report->kind) {
        *r->report = before;
    }
}

// The first buffer that another pass wrote differently, or -1.
static int64_t differs(const run *r, const shadow *s, int64_t *at) {
    for (uint32_t i = 0; i < r->launch->buffer_count; i++) {
        const anymetal_buffer *b = &r->launch->buffers[i];
        const uint8_t *first = result(r, s, i) ? result(r, s, i) : b->data, *second = r->buffers[i];
        if (!b->writable || !memcmp(first, second, b->bytes)) continue;
        for (*at = 0; first[*at] == second[*at];) ++*at;
        return i;
    }
    return -1;
}

static void make_copies(run *r) {
    for (uint32_t i = 0; i < r->launch->buffer_count; i++) {
        const anymetal_buffer *b = memory_of(r->launch, i);
        if (b == &r->launch->buffers[i]) memcpy(b->copy, b->data, b->bytes), guard_repair(b->copy, b->bytes);
    }
}

// A hash of the results of a pass on copies of the buffers; 0 if it did not end.
static uint64_t hash_of_pass(run *r) {
    make_copies(r);
    r->pass = 0, r->began = processor_time();
    run_pass(r);
    check_guards(r);
    uint64_t hash = 1;
    for (uint32_t i = 0; i < r->launch->buffer_count && !has_ended(r); i++) {
        const anymetal_buffer *b = &r->launch->buffers[i];
        uint64_t word = 0;
        for (uint64_t at = 0; at < b->bytes && b->writable; at += sizeof word) {
            memcpy(&word, r->buffers[i] + at, b->bytes - at < sizeof word ? b->bytes - at : sizeof word);
            word ^= hash, hash = mix(&word);
        }
    }
    if (has_ended(r)) hash = 0, r->ended = 0, memset(r->report, 0, sizeof *r->report);
    return hash;
}

// Whether a value of a lane that brought none is unused at a place: whatever it is, and all others, the results are equal.
static int is_unused(run *r, const anymetal_site *place) {
    static const uint8_t values[] = {0x7b, 0xfb, 0xff}; // as numbers of any size: large, large and negative, not a number
    int is_same = 1;
    r->missing_at = *place;
    for (r->missing = 0; is_same && r->missing <= values[0]; r->missing += values[0]) { // 0 hides factors, 0x7b maxima
        r->missing_there = 0;
        const uint64_t known = hash_of_pass(r);
        for (uint32_t i = 0; i < sizeof values && is_same; i++) {
            r->missing_there = values[i];
            is_same = known && hash_of_pass(r) == known;
        }
    }
    r->missing = 0xff, r->missing_at.file = NULL;
    return is_same;
}

static int is_of_lane(const anymetal_finding *f, const anymetal_site *place) {
    return f->kind == ANYMETAL_MISSING_LANE && !compare(&f->at, place);
}

// Drops the findings about lanes that brought no value where that is unused.
static void drop_unused_lanes(run *r) {
    anymetal_checks *c = r->launch->checks;
    for (uint32_t i = 0; i < c->count; i++) {
        const anymetal_site place = c->findings[i].at;
        int is_new = c->findings[i].kind == ANYMETAL_MISSING_LANE;
        for (uint32_t j = 0; j < i && is_new; j++) is_new = !is_of_lane(&c->findings[j], &place);
        if (!is_new || !is_unused(r, &place)) continue;
        uint32_t kept = i;
        for (uint32_t j = i; j < c->count; j++)
            if (!is_of_lane(&c->findings[j], &place)) c->findings[kept++] = c->findings[j];
        c->count = kept, i--;
    }
}

// Runs the kernel in an order and, on copies of the buffers, in its opposite; results that differ depend on the order.
// A buffer lies at the end of its pages and its copy at their start, so that an access on either side is a fault.
static void run_both_ways(run *r) {
    make_copies(r);
    shadow *s = run_once(r);
    take_copies(r);
    const int has_second = r->common && join(r), is_first = has_ended(r);
    r->pass = 1, r->began = processor_time();
    if (!has_second && !is_first) run_pass(r);
    if (!is_first) check_guards(r);
    int64_t at, other = has_ended(r) ? -1 : differs(r, s, &at);
    if (other >= 0) *r->report = (anymetal_report){.kind = ANYMETAL_ORDER, .buffer = (int32_t)other, .offset = at};
    const int is_checked = s && !is_first && r->report->kind && !r->ended;
    if (is_checked) check_opposite(r, s);
    else if (s && !has_ended(r)) drop_unused_lanes(r);
    take_results(r, s, is_checked);
}

void anymetal_run(const anymetal_launch *launch, anymetal_report *report) {
    memset(report, 0, sizeof *report);
    if (launch->checks) launch->checks->count = launch->checks->has_atomics = launch->checks->tried = 0;
    run r = {.launch = launch, .report = report, .pool = pool_take(), .missing = 0xff};
    if (!r.pool) { report->kind = ANYMETAL_MEMORY; return; }
    for (uint32_t i = 0; i < launch->buffer_count; i++) r.buffers[i] = launch->buffers[i].data;
    r.group = (anymetal_group){.buffers = r.bound, .locals = (void *const *)r.locals};
    for (uint32_t i = 0; i < 3; i++) {
        r.group.width[i] = launch->width[i];
        r.group.grid[i] = (uint32_t)launch->grid[i];
        r.group.groups[i] = launch->groups[i];
    }

    stack_t ours = {.ss_sp = r.pool->signal_stack, .ss_size = sizeof r.pool->signal_stack}, theirs;
    sigaltstack(&ours, &theirs); // so that a kernel that overruns its stack is caught too
    const uint64_t mode = floating_mode();
    r.began = processor_time(), r.deadline = r.began + launch->nanoseconds;
    current = &r;
    anymetal_bounds = &no_bounds;
    const int has_interrupt = catch_signals();
    watch ticks;
    if (watch_begin(&ticks)) {
        set_floating_mode((mode & ~FLUSH_DENORMALS) | (launch->flush_denormals ? FLUSH_DENORMALS : 0));
        if (launch->check_order) {
            run_both_ways(&r);
        } else {
            take_results(&r, run_once(&r), 0);
        }
        set_floating_mode(mode); // a signal handler that is left has other bits, too
        watch_end(&ticks);
    } else {
        report->kind = ANYMETAL_NO_TIMER;
    }
    if (has_interrupt) release_interrupt();
    current = NULL;
    sigaltstack(&theirs, NULL);
    if (r.ended && !report->kind) {
        const fibre *f = &r.pool->fibres[r.running];
        anymetal_report found = {.kind = ANYMETAL_STOPPED, .group = r.group.index, .count = (uint32_t)r.ended, .at = f->at};
        memcpy(found.trace, r.trace, sizeof found.trace);
        *report = found;
    }
    pool_give(r.pool);
}

void *anymetal_map(uint64_t accessible) { return guarded_map(accessible); }

void anymetal_unmap(void *first, uint64_t accessible) { guarded_unmap(first, accessible); }

void *anymetal_place(void *first, uint64_t accessible, uint64_t bytes) { return guarded_place(first, accessible, bytes); }
