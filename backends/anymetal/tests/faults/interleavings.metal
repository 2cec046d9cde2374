// Faults that only an interleaving of atomic operations shows, or a weak exchange that fails.
#include <metal_stdlib>
using namespace metal;

#define LOAD(p) atomic_load_explicit(p, memory_order_relaxed)
#define STORE(p, v) atomic_store_explicit(p, v, memory_order_relaxed)
#define SWAP(p, v) atomic_exchange_explicit(p, v, memory_order_relaxed)
#define ADD(p, v) atomic_fetch_add_explicit(p, v, memory_order_relaxed)
#define WEAK(p, e, v) atomic_compare_exchange_weak_explicit(p, e, v, memory_order_relaxed, memory_order_relaxed)

// ---------------------------------------------------------------- lost updates

kernel void count_by_load_and_store(device atomic_uint *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    STORE(y, LOAD(y) + 1);  // first, second
#else
    ADD(y, 1);
#endif
}

kernel void maximum_by_load_and_store(device atomic_float *y, device const float *x, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    if (x[i] > LOAD(y))
        STORE(y, x[i]);  // first, second
#else
    float e = LOAD(y);
    while (x[i] > e && !WEAK(y, &e, x[i])) {}
#endif
}

kernel void append_by_load_and_store(device const float *x, device uint *n, uint t [[thread_position_in_threadgroup]]) {
    threadgroup atomic_uint size;
    threadgroup float list[256];
    if (t == 0)
        STORE(&size, 0);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (x[t] > 0) {
#ifdef WRONG
        uint at = LOAD(&size);
        STORE(&size, at + 1);  // first, second
#else
        uint at = ADD(&size, 1);
        list[at] = x[t];
#endif
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t == 0)
        n[0] = LOAD(&size);
}

kernel void drain_beside_additions(device atomic_uint *n, device atomic_uint *total, uint i [[thread_position_in_grid]]) {
    if (i % 32 == 0) {
#ifdef WRONG
        uint taken = LOAD(n);
        STORE(n, 0);  // first
#else
        uint taken = SWAP(n, 0);
#endif
        ADD(total, taken);
    } else {
        ADD(n, 1);  // second
    }
}

kernel void relax_by_load_and_store(device atomic_uint *d, device const uint *w, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint v = LOAD(&d[i % 8]);
    if (w[i] < v)
        STORE(&d[i % 8], w[i]);  // first, second
#else
    atomic_fetch_min_explicit(&d[i % 8], w[i], memory_order_relaxed);
#endif
}

kernel void bits_by_load_and_store(device atomic_uint *bits, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    STORE(&bits[i / 32], LOAD(&bits[i / 32]) | 1u << i % 32);  // first, second
#else
    atomic_fetch_or_explicit(&bits[i / 32], 1u << i % 32, memory_order_relaxed);
#endif
}

kernel void histogram_by_load_and_store(device const uint *x, device uint *y, uint t [[thread_position_in_threadgroup]]) {
    threadgroup atomic_uint counts[8];
    if (t < 8)
        STORE(&counts[t], 0);
    threadgroup_barrier(mem_flags::mem_threadgroup);
#ifdef WRONG
    uint before = LOAD(&counts[x[t]]);
    STORE(&counts[x[t]], before + 1);  // first, second
#else
    ADD(&counts[x[t]], 1);
#endif
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t < 8)
        y[t] = LOAD(&counts[t]);
}

kernel void transfer_by_load_and_store(device atomic_int *accounts, device const uint *to, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    int left = LOAD(&accounts[0]);
    STORE(&accounts[0], left - 1);  // here
    ADD(&accounts[to[i]], 1);
#else
    atomic_fetch_sub_explicit(&accounts[0], 1, memory_order_relaxed);
    ADD(&accounts[to[i]], 1);
#endif
}

static uint taken(device atomic_uint *p) { return LOAD(p); }
static void put(device atomic_uint *p, uint v) {
#ifdef WRONG
    STORE(p, v);  // first, second
#else
    ADD(p, 2);
#endif
}
kernel void add_in_functions(device atomic_uint *y, uint i [[thread_position_in_grid]]) {
    put(&y[i % 4], taken(&y[i % 4]) + 2);
}

kernel void scale_beside_additions(device atomic_uint *y, uint i [[thread_position_in_grid]]) {
    if (i == 7) {
#ifdef WRONG
        STORE(y, LOAD(y) * 2);  // first
#else
        uint e = LOAD(y);
        while (!WEAK(y, &e, e * 2)) {}
#endif
    } else {
        ADD(y, 1);  // second
    }
}

kernel void lowest_of_negatives(device atomic_int *y, device const int *x, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    int best = min(LOAD(y), x[i]);
    STORE(y, best);  // first, second
#else
    atomic_fetch_min_explicit(y, x[i], memory_order_relaxed);
#endif
}

kernel void owner_by_load_and_store(device atomic_uint *owner, device uint *won, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    if (LOAD(&owner[i % 4]) == 0) {
        STORE(&owner[i % 4], i + 1);  // first, second
        won[i] = 1;
    }
#else
    uint e;
    bool is_mine;
    do {
        e = 0;
        is_mine = WEAK(&owner[i % 4], &e, i + 1);
    } while (!is_mine && e == 0);
    if (is_mine)
        won[i] = 1;
#endif
}

kernel void count_to_a_limit(device atomic_uint *n, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint e = LOAD(n);
    if (e < 100)
        STORE(n, e + 1);  // first, second
#else
    uint e = LOAD(n);
    while (e < 100 && !WEAK(n, &e, e + 1)) {}
#endif
}

kernel void sums_of_lanes(device atomic_float *y, device const float *x, uint i [[thread_position_in_grid]]) {
    if (i % 2 == 0) {
#ifdef WRONG
        STORE(&y[i / 32], LOAD(&y[i / 32]) + x[i]);  // first, second
#else
        ADD(&y[i / 32], x[i]);
#endif
    }
}

kernel void reference_count_by_store(device atomic_uint *count, device atomic_uint *freed, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint left = LOAD(count) - 1;
    STORE(count, left);  // first, second
#else
    uint left = atomic_fetch_sub_explicit(count, 1, memory_order_relaxed) - 1;
#endif
    if (left == 0)
        ADD(freed, 1);
}

// ---------------------------------------------------------------- values that recur (ABA)

kernel void free_list_without_tags(device atomic_uint *head, device atomic_uint *next, uint i [[thread_position_in_grid]]) {
    uint h, o;
#ifdef WRONG
    do
        h = LOAD(head);
    while (!WEAK(head, &h, LOAD(&next[h])));  // here
    o = LOAD(head);
    do
        SWAP(&next[h], o);
    while (!WEAK(head, &o, h));  // here
#else
    uint w = LOAD(head);
    while (!WEAK(head, &w, LOAD(&next[w & 0xffff]) | ((w + 0x10000) & 0xffff0000))) {}
    h = w & 0xffff;
    o = LOAD(head);
    do
        SWAP(&next[h], o & 0xffff);
    while (!WEAK(head, &o, h | ((o + 0x10000) & 0xffff0000)));
#endif
}

kernel void slots_of_a_threadgroup(device uint *y, uint t [[thread_position_in_threadgroup]]) {
    threadgroup atomic_uint head, next[65];
    STORE(&next[t], t + 1);
    if (t == 0) {
        STORE(&head, 0);
        STORE(&next[64], 64);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint w = LOAD(&head), n, slot;
#ifdef WRONG
    do {
        n = LOAD(&next[w]);
    } while (!WEAK(&head, &w, n));  // here
    slot = w;
    w = LOAD(&head);
    do
        SWAP(&next[slot], w);
    while (!WEAK(&head, &w, slot));  // here
#else
    do {
        n = LOAD(&next[w & 0xff]);
    } while (!WEAK(&head, &w, n | ((w + 0x100) & 0xffffff00)));
    slot = w & 0xff;
    w = LOAD(&head);
    do
        SWAP(&next[slot], w & 0xff);
    while (!WEAK(&head, &w, slot | ((w + 0x100) & 0xffffff00)));
#endif
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[t] = LOAD(&next[64]);
}

static uint pop(device atomic_uint *list) {
    uint w = LOAD(&list[0]);
#ifdef WRONG
    while (!WEAK(&list[0], &w, LOAD(&list[w]))) {}  // here
    return w;
#else
    while (!WEAK(&list[0], &w, LOAD(&list[w & 0xffff]) | ((w + 0x10000) & 0xffff0000))) {}
    return w & 0xffff;
#endif
}
static void push(device atomic_uint *list, uint node) {
    uint w = LOAD(&list[0]);
#ifdef WRONG
    do
        SWAP(&list[node], w);
    while (!WEAK(&list[0], &w, node));  // here
#else
    do
        SWAP(&list[node], w & 0xffff);
    while (!WEAK(&list[0], &w, node | ((w + 0x10000) & 0xffff0000)));
#endif
}
kernel void nodes_in_functions(device atomic_uint *list, uint i [[thread_position_in_grid]]) {
    uint first = pop(list);
    uint second = pop(list);
    push(list, first);
    push(list, second);
}

kernel void toggled_state(device atomic_uint *state, device atomic_uint *value, device atomic_uint *y,
                          uint i [[thread_position_in_grid]]) {
    // A reader takes a value, and expects that nobody has changed it if the state is as before.
    if (i % 2) {
        uint s = LOAD(state);
#ifdef WRONG
        do {
            SWAP(value, i);
        } while (!WEAK(state, &s, s ^ 1));
#else
        do {
            SWAP(value, i);
        } while (!WEAK(state, &s, s + 1));
#endif
    } else {
        uint s = LOAD(state);
        uint v = LOAD(value);
        while (!WEAK(state, &s, s + 2))  // here
            v = LOAD(value);
        SWAP(y, v);
    }
}

// ---------------------------------------------------------------- check, then act

kernel void claim_by_flag(device atomic_uint *taken, device uint *won, device const uint *s, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    if (LOAD(&taken[s[i]]) == 0) {
        STORE(&taken[s[i]], 1);  // first, second
        won[i] = 1;
    }
#else
    if (SWAP(&taken[s[i]], 1) == 0)
        won[i] = 1;
#endif
}

kernel void report_once(device atomic_uint *seen, device atomic_uint *reports, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    if (LOAD(seen) == 0) {
        STORE(seen, 1);  // first, second
        ADD(reports, 1);
    }
#else
    if (SWAP(seen, 1) == 0)
        ADD(reports, 1);
#endif
}

kernel void visit_once(device atomic_uint *visited, device const uint *edges, device atomic_uint *count,
                       uint i [[thread_position_in_grid]]) {
    uint v = edges[i];
#ifdef WRONG
    if (LOAD(&visited[v]) == 0) {
        STORE(&visited[v], 1);  // first, second
        ADD(count, 1);
    }
#else
    if (atomic_fetch_or_explicit(&visited[v], 1, memory_order_relaxed) == 0)
        ADD(count, 1);
#endif
}

kernel void initialize_once(device atomic_int *state, device atomic_int *total, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    int s = LOAD(state);
    if (s == -1) {
        STORE(state, 0);  // first, second
        ADD(total, 100);
    }
#else
    if (SWAP(state, 0) == -1)
        ADD(total, 100);
#endif
}

kernel void leader_of_a_threadgroup(device uint *y, uint t [[thread_position_in_threadgroup]]) {
    threadgroup atomic_uint has_leader, leaders;
    if (t == 0) {
        STORE(&has_leader, 0);
        STORE(&leaders, 0);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
#ifdef WRONG
    if (LOAD(&has_leader) == 0) {
        STORE(&has_leader, 1);  // first, second
        ADD(&leaders, 1);
    }
#else
    if (SWAP(&has_leader, 1) == 0)
        ADD(&leaders, 1);
#endif
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t == 0)
        y[0] = LOAD(&leaders);
}

// ---------------------------------------------------------------- waits

kernel void look_back_by_ticket(device const uint *x, device uint *y, device atomic_uint *state, device atomic_uint *ticket,
                                uint t [[thread_position_in_threadgroup]]) {
    threadgroup uint carry, mine;
    if (t == 0)
        mine = ADD(ticket, 1);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint q = mine, s = simd_prefix_inclusive_sum(x[q * 32 + t]);
#ifdef WRONG
    if (t == 31) {
        uint before = 0, found = 0;
        if (q > 0) {
            do
                found = LOAD(&state[q - 1]);  // first
            while (!(found & 0x80000000u));
            before = found & 0x7fffffffu;
        }
        STORE(&state[q], (before + s) | 0x80000000u);  // second
        carry = before;
    }
#else
    if (t == 31) {
        carry = 0;
        for (uint j = 0; j < q * 32; j++)
            carry += x[j];
    }
#endif
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[q * 32 + t] = carry + s;
}

kernel void lock_between_threadgroups(device atomic_uint *lock, device atomic_uint *y, uint t [[thread_position_in_threadgroup]]) {
    if (t == 0) {
#ifdef WRONG
        while (SWAP(lock, 1)) {}  // first, second
        STORE(y, LOAD(y) + 1);
        STORE(lock, 0);  // second
#else
        ADD(y, 1);
#endif
    }
}

kernel void lock_in_a_simdgroup(device atomic_uint *lock, device atomic_uint *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint free;
    do
        free = 0;
    while (!WEAK(lock, &free, 1));  // first
    STORE(y, LOAD(y) + 1);
    STORE(lock, 0);  // second
#else
    ADD(y, 1);
#endif
}

kernel void test_and_test_and_set(device atomic_uint *lock, device atomic_uint *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint free;
    do {
        while (LOAD(lock) == 1) {}  // first
        free = 0;
    } while (!WEAK(lock, &free, 1));  // first
    STORE(y, LOAD(y) + 1);
    STORE(lock, 0);  // second
#else
    ADD(y, 1);
#endif
}

kernel void producer_by_ticket(device uint *y, uint t [[thread_position_in_threadgroup]]) {
    threadgroup atomic_uint ticket, value;
    if (t == 0) {
        STORE(&ticket, 0);
        STORE(&value, 0);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t % 32 == 0) {
        bool is_first = ADD(&ticket, 1) == 0;
#ifdef WRONG
        if (is_first)
            STORE(&value, 5);  // second
        else
            while (LOAD(&value) == 0) {}  // first
        y[t / 32] = LOAD(&value);
    }
#else
        if (is_first)
            STORE(&value, 5);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t % 32 == 0)
        y[t / 32] = LOAD(&value);
#endif
}

kernel void turns_of_lanes(device uint *y, uint t [[thread_position_in_threadgroup]]) {
    threadgroup atomic_uint turn, ticket;
    if (t == 0) {
        STORE(&turn, 0);
        STORE(&ticket, 0);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
#ifdef WRONG
    uint mine = ADD(&ticket, 1);
    while (LOAD(&turn) != mine) {}  // first
    y[mine] = mine * 2;
    STORE(&turn, mine + 1);  // second
#else
    uint mine = ADD(&ticket, 1);
    y[mine] = mine * 2;
#endif
}

kernel void locks_in_opposite_orders(device atomic_uint *locks, device atomic_uint *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    uint a = i % 2, b = 1 - a;
    while (SWAP(&locks[a], 1)) {}  // here
    while (SWAP(&locks[b], 1)) {}  // here
    STORE(y, LOAD(y) + 1);
    STORE(&locks[b], 0);
    STORE(&locks[a], 0);
#else
    ADD(y, 1);
#endif
}

// ---------------------------------------------------------------- accesses that only an interleaving reaches

kernel void place_behind_a_look(device atomic_uint *n, device uint *list, uint i [[thread_position_in_grid]]) {
    if (LOAD(n) >= 16)
        return;
    uint place = ADD(n, 1);
#ifndef WRONG
    if (place < 16)
#endif
        list[place] = 1;  // here
}

kernel void list_of_a_threadgroup(device const float *x, device uint *y, uint t [[thread_position_in_threadgroup]]) {
    threadgroup atomic_uint n;
    threadgroup float list[16];
    if (t < 16)
        list[t] = 0;
    if (t == 0)
        STORE(&n, 0);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (LOAD(&n) < 16) {
        uint place = ADD(&n, 1);
#ifndef WRONG
        if (place < 16)
#endif
            list[place] = x[t];  // here
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t < 16)
        y[t] = list[t] > 0;
}

// ---------------------------------------------------------------- weak exchanges

kernel void set_once(device atomic_uint *y, uint i [[thread_position_in_grid]]) {
    uint e = 0;
#ifdef WRONG
    WEAK(&y[i], &e, 1);  // here
#else
    while (!WEAK(&y[i], &e, 1) && e == 0) {}
#endif
}

kernel void next_slot_after_failure(device const uint *keys, device atomic_uint *slots, device uint *owners,
                                    uint i [[thread_position_in_grid]]) {
    uint slot = keys[i] % 64;
    for (uint tries = 0; tries < 64; tries++) {
        uint empty = 0;
        bool is_mine = WEAK(&slots[slot], &empty, keys[i] + 1);  // here
#ifndef WRONG
        while (!is_mine && empty == 0)
            is_mine = WEAK(&slots[slot], &empty, keys[i] + 1);
#endif
        if (is_mine)
            owners[slot] = 1;
        if (is_mine || empty == keys[i] + 1)
            break;
        slot = (slot + 1) % 64;
    }
}

kernel void maximum_by_one_exchange(device atomic_uint *y, device const uint *x, uint i [[thread_position_in_grid]]) {
    uint e = LOAD(&y[i / 4]);
#ifdef WRONG
    if (x[i] > e)
        WEAK(&y[i / 4], &e, x[i]);  // here
#else
    while (x[i] > e && !WEAK(&y[i / 4], &e, x[i])) {}
#endif
}

kernel void attempt_at_a_lock(device atomic_uint *locks, device uint *y, uint i [[thread_position_in_grid]]) {
    uint free = 0;
#ifdef WRONG
    if (WEAK(&locks[i], &free, 1))  // here
        y[i] += 1;
#else
    if (SWAP(&locks[i], 1) == free)
        y[i] += 1;
#endif
}

kernel void empty_after_failure(device atomic_uint *heads, device uint *found, uint i [[thread_position_in_grid]]) {
    uint h = LOAD(&heads[i]);
#ifdef WRONG
    found[i] = h != 0 && WEAK(&heads[i], &h, h - 1);  // here
#else
    while (h != 0 && !WEAK(&heads[i], &h, h - 1)) {}
    found[i] = h != 0;
#endif
}

kernel void winners_of_a_threadgroup(device uint *y, uint t [[thread_position_in_threadgroup]]) {
    threadgroup atomic_uint slots[8];
    if (t < 8)
        STORE(&slots[t], 0);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint e = 0;
#ifdef WRONG
    WEAK(&slots[t / 8], &e, 1);  // here
#else
    while (!WEAK(&slots[t / 8], &e, 1) && e == 0) {}
#endif
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[t] = e + LOAD(&slots[t / 8]);
}

// ---------------------------------------------------------------- arguments of lanes

kernel void down_by_parity(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    float v = simd_shuffle_down(x[i], i % 2 + 1);  // here
#else
    float v = simd_shuffle(x[i], i % 32 + i % 2 + 1 < 32 ? i % 32 + i % 2 + 1 : i % 32);
#endif
    y[i] = i < 28 ? v : 0;
}

kernel void up_by_row(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    float v = simd_shuffle_up(x[i], i / 16 + 1);  // here
#else
    float a = simd_shuffle_up(x[i], 1), b = simd_shuffle_up(x[i], 2), v = i < 16 ? a : b;
#endif
    y[i] = i < 2 ? 0 : v;
}

kernel void exclusive_or_of_three(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    y[i] = simd_shuffle_xor(x[i], i % 4 == 3 ? 2 : 1);  // here
#else
    y[i] = simd_shuffle(x[i], i % 32 ^ (i % 4 == 3 ? 2 : 1));
#endif
}

kernel void rotated_by_lane(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    y[i] = simd_shuffle_rotate_down(x[i], i);  // here
#else
    y[i] = simd_shuffle(x[i], i * 2 % 32);
#endif
}

kernel void broadcast_of_each(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    y[i] = simd_broadcast(x[i], i % 4);  // here
#else
    y[i] = simd_shuffle(x[i], i % 4);
#endif
}

kernel void quad_of_two_masks(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    y[i] = quad_shuffle_xor(x[i], i % 4 < 3 ? 1 : 2);  // here
#else
    y[i] = quad_shuffle_xor(x[i], i / 4 % 2 + 1);
#endif
}

kernel void quad_broadcast_of_each(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    y[i] = quad_broadcast(x[i], 3 - i % 4);  // here
#else
    y[i] = quad_broadcast(x[i], i / 4 % 4);
#endif
}

kernel void filled_by_lane(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    y[i] = simd_shuffle_and_fill_down(x[i], 0.0f, i < 16 ? 1 : 2);  // here
#else
    y[i] = simd_shuffle_and_fill_down(x[i], 0.0f, 1);
#endif
}
