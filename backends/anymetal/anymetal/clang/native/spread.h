// Threadgroups on several cores. Once a launch has turned out to be long, the threadgroups that are left run in child
// processes. Each has a copy of all memory as it was then, and a shadow of its own; only the buffers that the kernel
// writes are shared. The parent waits, and keeps its memory. If all children end well, it takes their results. After a
// finding, a fault, or accesses of two children that conflict, it runs these threadgroups itself: what a launch reports
// does not depend on the children.
#pragma once

#ifdef __linux__
#include <errno.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { MOST_WORKERS = 250, SPREAD_COST = 30000000, CHILD_COST = 1000000 }; // a claim is a byte; nanoseconds

// What the children share, before the pages of the buffers, a claim for each of their bytes, and the blocks that ran.
struct common {
    uint64_t written[ANYMETAL_MAX_BUFFERS];
    uint32_t is_read[ANYMETAL_MAX_BUFFERS];
    uint32_t operations, has_exchange, is_contended; // of the shadow
    uint32_t claimed, has_atomics; // claimed: children that have claimed all they wrote
};

static void check_guards(run *r);
static void run_pass(run *r);

static void pause_shortly(void) { nanosleep(&(struct timespec){0, 300000}, NULL); }

// The pages of a buffer that the kernel writes; none for the others, and where it is bound again.
static extent written_pages(const run *r, uint32_t i) {
    const anymetal_launch *l = r->launch;
    uint32_t is_written = 0;
    if (!l->buffers[i].data || memory_of(l, i) != &l->buffers[i]) return (extent){0};
    for (uint32_t j = i; j < l->buffer_count; j++) is_written |= l->buffers[j].writable && memory_of(l, j) == &l->buffers[i];
    return is_written ? extent_of(r->buffers[i], l->buffers[i].bytes) : (extent){0};
}

static uint64_t pages_bytes(extent e) { return (uint64_t)(e.end - e.first); }

// Puts the number of this process on each byte that it wrote.
static void claim(const run *r, uint8_t number) {
    for (uint32_t i = 0; i < r->launch->buffer_count; i++) {
        const region *m = &r->shadow->regions[i];
        for (uint64_t u = 0; r->claims[i] && u < units(m); u++)
            if (m->writers[u]) memset(r->claims[i] + (u << m->unit_bits), number, (size_t)1 << m->unit_bits);
    }
}

// Whether the number is still there, and no other one on what it only read. All processes have claimed by now.
static int keeps_claims(const run *r, uint8_t number) {
    int is_kept = 1;
    for (uint32_t i = 0; i < r->launch->buffer_count; i++) {
        const region *m = &r->shadow->regions[i];
        for (uint64_t u = 0; r->claims[i] && u < units(m); u++) {
            const uint8_t *at = r->claims[i] + (u << m->unit_bits);
            if (!m->writers[u] && !(m->is_read && m->readers[u])) continue;
            for (uint32_t b = 0; b < 1u << m->unit_bits; b++) is_kept &= at[b] == number || (!at[b] && !m->writers[u]);
        }
    }
    return is_kept;
}

static void worker_begin(run *r, uint32_t number, int parent, uint64_t nanoseconds) {
    watch ticks;
    sigset_t ours;
    sigemptyset(&ours);
    for (int i = 0; i < SIGNALS; i++)
        if (signals[i] != SIGINT) sigaddset(&ours, signals[i]); // an interrupt is for the parent
    if (r->shadow) r->operations = r->shadow->operations;
    r->worker = number, r->deadline = processor_time() + nanoseconds;
    const rlim_t seconds = nanoseconds / 1000000000u + 2; // of one that cannot end any more
    setrlimit(RLIMIT_CPU, &(struct rlimit){seconds, seconds});
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || !watch_begin(&ticks)) _exit(1);
    for (uint32_t i = 0; i < r->launch->buffer_count; i++) {
        const extent e = written_pages(r, i);
        const uint64_t size = pages_bytes(e);
        if (!size) continue;
        if (mremap(r->pages[i], size, size, MREMAP_MAYMOVE | MREMAP_FIXED, e.first) == MAP_FAILED) _exit(1);
        if (!r->shadow) continue;
        region *m = &r->shadow->regions[i];
        m->written = m->is_read = 0;
        if (!region_watch(r->shadow, m)) _exit(1);
    }
    pthread_sigmask(SIG_UNBLOCK, &ours, NULL);
}

// Ends a worker, with the status 0 if the results may be used.
static void worker_end(run *r) {
    struct common *c = r->common;
    const anymetal_checks *checks = r->launch->checks;
    if (r->shadow) settle(r); else check_guards(r);
    if (has_ended(r)) _exit(1);
    if (r->shadow) {
        claim(r, (uint8_t)r->worker);
        __atomic_fetch_add(&c->claimed, 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&c->claimed, __ATOMIC_SEQ_CST) < r->workers) pause_shortly();
        if (!keeps_claims(r, (uint8_t)r->worker)) _exit(1);
        for (uint32_t i = 0; i < r->launch->buffer_count; i++) {
            if (r->claims[i]) __atomic_fetch_add(&c->written[i], r->shadow->regions[i].written, __ATOMIC_RELAXED);
            if (r->shadow->regions[i].is_read) __atomic_store_n(&c->is_read[i], 1, __ATOMIC_RELAXED);
        }
        __atomic_fetch_add(&c->operations, r->shadow->operations - r->operations, __ATOMIC_RELAXED);
        if (r->shadow->has_exchange) __atomic_store_n(&c->has_exchange, 1, __ATOMIC_RELAXED);
        if (r->shadow->is_contended) __atomic_store_n(&c->is_contended, 1, __ATOMIC_RELAXED);
    }
    if (checks && checks->has_atomics) c->has_atomics = 1;
    for (uint64_t i = 0; checks && i < checks->block_count; i++)
        if (checks->reached[i]) r->reached[i] = 1;
    _exit(0);
}

// Whether nothing but the order of a pass may order its threadgroups, as far as is known.
static int is_independent(const run *r) {
    const anymetal_launch *l = r->launch;
    const anymetal_checks *c = l->checks;
    if (!c) return !l->check_order && !l->has_atomics;
    if (c->count) return 0;
    return r->shadow ? !r->shadow->is_shared : !c->has_atomics && l->groups[0] * l->groups[1] * l->groups[2] <= MOST_GROUP;
}

static uint64_t nanoseconds(struct timeval t) { return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u; }

// Waits for the children, and kills those that are left after a failure or the end of the launch; whether all ended well.
static int await(run *r) {
    uint32_t left = r->child_count;
    uint64_t time = 0;
    int is_well = !r->has_failed;
    while (left && is_well && !has_ended(r)) {
        for (uint32_t i = 0; i < r->child_count; i++) {
            struct rusage used;
            int status = 1;
            const int ended = r->children[i] ? wait4(r->children[i], &status, WNOHANG | __WALL, &used) : 0;
            if (!ended || (ended < 0 && errno == EINTR)) continue;
            r->children[i] = 0, left--, is_well &= !status;
            if (ended > 0) time += nanoseconds(used.ru_utime) + nanoseconds(used.ru_stime);
        }
        if (left) pause_shortly();
    }
    for (uint32_t i = 0; i < r->child_count; i++) {
        if (!r->children[i]) continue;
        kill(r->children[i], SIGKILL);
        while (wait4(r->children[i], NULL, __WALL, NULL) < 0 && errno == EINTR) {}
    }
    if (!is_well || left) return 0;
    r->deadline = r->deadline > time ? r->deadline - time : 0;
    return 1;
}

// Takes the results of the children; whether it could.
static int join(run *r) {
    anymetal_checks *c = r->launch->checks;
    const int is_well = await(r) && (!r->shadow || keeps_claims(r, MOST_WORKERS + 1));
    for (uint32_t i = 0; i < r->launch->buffer_count && is_well; i++) {
        const extent e = written_pages(r, i);
        memcpy(e.first, r->pages[i], pages_bytes(e));
        if (r->shadow) r->shadow->regions[i].written += r->common->written[i], r->shadow->regions[i].is_read |= r->common->is_read[i];
    }
    for (uint64_t i = 0; c && i < c->block_count && is_well; i++) c->reached[i] |= r->reached[i];
    if (r->shadow && is_well) {
        r->shadow->operations += r->common->operations;
        r->shadow->has_exchange |= r->common->has_exchange, r->shadow->is_contended |= r->common->is_contended;
    }
    if (c && is_well) c->has_atomics |= r->common->has_atomics;
    if (is_well) r->report->workers = r->child_count;
    munmap(r->common, r->common_bytes);
    r->common = NULL, r->has_failed = !is_well;
    return is_well;
}

// The second pass of a launch, in a child beside the first.
static void run_second(run *r) {
    r->pass = 1;
    anymetal_bounds = &no_bounds;
    for (uint32_t i = 0; i < r->launch->local_count; i++) r->locals[i] = NULL;
    run_pass(r);
}

// Maps what the children share, with the buffers as they are; 0 when there is no memory.
static int share(run *r, uint64_t bytes, int has_claims) {
    const anymetal_checks *c = r->launch->checks;
    r->common_bytes = bytes + (c ? c->block_count : 0);
    uint8_t *at = mmap(NULL, r->common_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANON | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return 0;
    r->common = (struct common *)at, at += round_up(sizeof(struct common), page_size());
    for (uint32_t i = 0; i < r->launch->buffer_count; i++) {
        const extent e = written_pages(r, i);
        touched(at, pages_bytes(e));
        memcpy(at, e.first, pages_bytes(e));
        r->pages[i] = at, at += pages_bytes(e);
        r->claims[i] = has_claims && pages_bytes(e) ? at : NULL, at += pages_bytes(e) + page_size();
    }
    r->reached = at;
    return 1;
}

// If what is left of a pass is worth it, runs the threadgroups from the k-th on in children, or the second pass in one
// beside the first where threadgroups may depend on each other. Returns whether the pass is done. It returns in a child,
// too, which runs the threadgroups that are its own (is_others).
static int spread(run *r, uint32_t k) {
    const anymetal_launch *l = r->launch;
    const uint32_t all = l->groups[0] * l->groups[1] * l->groups[2], is_second = !is_independent(r);
    const uint32_t most = is_second ? 1 + (l->check_order && !r->pass) : all - k < MOST_WORKERS ? all - k : MOST_WORKERS;
    const uint64_t now = processor_time(), left = r->deadline > now ? r->deadline - now : 0;
    const double expected = k ? (double)(now - r->began) / k * (all - k) : 0; // nanoseconds
    uint64_t bytes = round_up(sizeof(struct common), page_size());
    r->is_due = 0;
    if (l->workers < 2 || most < 2 || r->common || r->has_failed || r->trial) return 0; // a child has r->common, too
    r->workers = l->workers < most ? l->workers : most;
    for (uint32_t i = 0; i < l->buffer_count; i++) {
        if (l->buffers[i].file >= 0) return 0; // its pages are those of the file
        bytes += 2 * pages_bytes(written_pages(r, i)) + page_size();
    }
    while (!l->spreads_at_once && r->workers > 2 && 1.0 * CHILD_COST * r->workers * r->workers > expected) r->workers--;
    const double gain = expected * (r->workers - 1) / r->workers;
    if (!l->spreads_at_once && (expected >= left || gain < SPREAD_COST + (double)bytes)) return 0;
    if (bytes > (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page_size() / 4) return 0;

    uint8_t *buffers[ANYMETAL_MAX_BUFFERS];
    memcpy(buffers, r->buffers, sizeof buffers);
    if (is_second) take_copies(r), r->workers = 1;
    const int is_shared = share(r, bytes, r->shadow && !is_second), parent = getpid();
    if (is_shared && r->shadow && !is_second) claim(r, MOST_WORKERS + 1);
    const uint64_t limit = is_second || !k || 4 * expected > left ? left : (uint64_t)(4 * expected);
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    for (r->child_count = 0; r->child_count < r->workers && is_shared && !r->has_failed; r->child_count++) {
        const long child = syscall(SYS_clone, 0, 0, 0, 0, 0); // fork() calls what other libraries have registered
        if (!child) {
            if (is_second) r->shadow = NULL;
            worker_begin(r, r->child_count + 1, parent, limit);
            if (is_second) run_second(r);
            return 0;
        }
        r->children[r->child_count] = child > 0 ? (int)child : 0, r->has_failed = child < 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    memcpy(r->buffers, buffers, sizeof buffers);
    return is_shared && !is_second && join(r);
}
#else
static int spread(run *r, uint32_t k) { return r->is_due = 0; }
static void worker_end(run *r) {}
static int join(run *r) { return 0; }
#endif

// Whether a threadgroup is not one of those of this worker, which lie in a few rows.
static inline int is_others(const run *r, uint32_t group, uint32_t size) {
    const uint32_t rows = size < 8 * r->workers ? size : 8 * r->workers;
    return r->worker && (uint64_t)group * rows / size % r->workers != r->worker - 1;
}
