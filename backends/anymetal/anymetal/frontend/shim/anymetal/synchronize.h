// Barriers and the functions of simdgroups and quadgroups. On a processor each one stops its thread until the launcher
// lets it go on; the place in the source tells apart the places where threads of one group may wait. On an NVIDIA GPU a
// simdgroup is a warp.
#pragma once

#ifndef ANYMETAL_STRICT
#include "abi.h"
#define ANYMETAL_HERE anymetal_site anymetal_here = {__builtin_FILE(), __builtin_LINE(), __builtin_COLUMN()}
#define ANYMETAL_PLACE anymetal_here
#else
#define ANYMETAL_HERE uint anymetal_line = __builtin_LINE()
#define ANYMETAL_PLACE anymetal_line
#define ANYMETAL_SIMD_WIDTH 32
#define ANYMETAL_SIMD_BYTES 64
#endif

namespace anymetal {

#ifdef ANYMETAL_STRICT
typedef uint anymetal_site;
typedef anymetal_site site;
inline site here() { return 0; }
inline void barrier(uint, anymetal_site) {}
inline void simd_barrier(uint, anymetal_site) {}
inline uint thread_index() { return 0; }
inline uint lane() { return 0; }
#else
typedef anymetal_site site;
constexpr site here(site place = {__builtin_FILE(), __builtin_LINE(), __builtin_COLUMN()}) { return place; }
#endif
#ifdef ANYMETAL_STRICT
#elif defined(ANYMETAL_CUDA)
inline void barrier(uint, anymetal_site) { asm volatile("bar.sync 0;" ::: "memory"); }
inline void simd_barrier(uint, anymetal_site) { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
#ifdef ANYMETAL_EXACT
inline uint thread_index() {
    const uint row = __nvvm_read_ptx_sreg_tid_y() + __nvvm_read_ptx_sreg_ntid_y() * __nvvm_read_ptx_sreg_tid_z();
    return __nvvm_read_ptx_sreg_tid_x() + __nvvm_read_ptx_sreg_ntid_x() * row;
}
#else
inline uint thread_index() { return __nvvm_read_ptx_sreg_tid_x(); }
#endif
inline uint lane() {
    uint self;
    asm("mov.u32 %0, %%laneid;" : "=r"(self));
    return self;
}
#else
inline void barrier(uint flags, anymetal_site here) { anymetal_barrier(flags, here); }
inline void simd_barrier(uint flags, anymetal_site here) {
    anymetal_exchange_values(&flags, sizeof flags, flags | ANYMETAL_IS_BARRIER, here);
}
inline uint thread_index() { return anymetal_thread_index(); }
inline uint lane() { return thread_index() % ANYMETAL_SIMD_WIDTH; }
#endif

// What the active lanes of this simdgroup brought along, after all of them have arrived. A function reads it before the
// thread synchronizes again.
template <class T> struct lanes {
    static_assert(sizeof(T) <= ANYMETAL_SIMD_BYTES, "simdgroup functions take scalars and vectors of up to 64 bytes");
    uint self, active;
#ifdef ANYMETAL_STRICT
    lanes(T, anymetal_site, uint = 0) {}
    T operator[](uint) const { return T(); }
#elif defined(ANYMETAL_CUDA) // all lanes that have not returned take part, and read the value of a lane together
    T mine;
    lanes(T value, anymetal_site, uint = 0) : self(lane()), mine(value) {
        asm volatile("{ .reg .pred p; setp.eq.u32 p, 0, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }" : "=r"(active));
    }
    T operator[](uint lane) const {
        enum { words = (sizeof(T) + 3) / 4 };
        uint word[words] = {};
        __builtin_memcpy(word, &mine, sizeof(T));
        for (uint i = 0; i < words; i++)
            asm volatile("shfl.sync.idx.b32 %0, %0, %1, 31, 0xffffffff;" : "+r"(word[i]) : "r"(lane % 32));
        T value;
        __builtin_memcpy(&value, word, sizeof(T));
        return value;
    }
#else
    const ANYMETAL_UNTOLD anymetal_exchange *all;
    ANYMETAL_UNCHECKED static uintptr_t bring(T mine, anymetal_site here, uint flags) {
        return (uintptr_t)anymetal_exchange_values(&mine, sizeof mine, flags, here);
    }
    lanes(T mine, anymetal_site here, uint flags = 0) : self(lane()) {
        if constexpr (!__is_class(T)) { // a call of its own returns to a place that the processor does not predict
            T brought;
            *(ANYMETAL_UNTOLD T *)(uintptr_t)&brought = mine;
            all = (const ANYMETAL_UNTOLD anymetal_exchange *)(uintptr_t)anymetal_exchange_values(&brought, sizeof mine, flags, here);
        } else {
            all = (const ANYMETAL_UNTOLD anymetal_exchange *)bring(mine, here, flags);
        }
        active = all->active;
    }
    T operator[](uint lane) const { return at(lane % ANYMETAL_SIMD_WIDTH); }
    T at(uint slot) const {
        const ANYMETAL_UNTOLD void *const from = all->value[slot];
        if constexpr (!__is_class(T)) {
            return *(const ANYMETAL_UNTOLD T *)from;
        } else { // no constructor takes an object in this address space
            return *(const T *)(uintptr_t)from;
        }
    }
#endif
    // The value of a lane, which has to take part if the value is used.
    ANYMETAL_TOUCHES T of(uint lane, bool is_used, anymetal_site here) const {
#ifdef ANYMETAL_CHECKED
        if (is_used && !has(lane)) return at(anymetal_missing_lane(lane, lane, here.file, here.line, here.column));
#endif
        return (*this)[lane];
    }
    // The same of a number in lanes from `start` on.
    ANYMETAL_TOUCHES T of(uint start, uint number, uint width, anymetal_site here) const {
#ifdef ANYMETAL_CHECKED
        if (number >= width)
            return at(anymetal_missing_lane(number, ANYMETAL_SIMD_WIDTH, here.file, here.line, here.column));
#endif
        return of(start + number % width, number < width, here);
    }
    bool has(uint lane) const { return lane < ANYMETAL_SIMD_WIDTH && (active >> lane & 1); }
    uint first(uint width) const { // active lane of this quadgroup or simdgroup
        const uint start = self & -width;
        return start + uint(__builtin_ctz(active >> start));
    }
};

template <class T> inline T exclusive_or(T a, T b) { // sources have it for float, too
    if constexpr (__is_same(T, float))
        return bits<float>(bits<uint>(a) ^ bits<uint>(b));
    else
        return T(a ^ b);
}

} // namespace anymetal

namespace metal {

enum class mem_flags : uint { // the last two are those of render functions
    mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4, mem_threadgroup_imageblock = 8, mem_object_data = 16
};
inline constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }
inline constexpr mem_flags operator&(mem_flags a, mem_flags b) { return mem_flags(uint(a) & uint(b)); }

enum thread_scope {
    thread_scope_thread = __METAL_MEMORY_SCOPE_THREAD__,
    thread_scope_threadgroup = __METAL_MEMORY_SCOPE_THREADGROUP__,
    thread_scope_device = __METAL_MEMORY_SCOPE_DEVICE__,
    thread_scope_simdgroup = __METAL_MEMORY_SCOPE_SIMDGROUP__
};
inline void threadgroup_barrier(mem_flags flags, ANYMETAL_HERE) { anymetal::barrier(uint(flags), ANYMETAL_PLACE); }
inline void simdgroup_barrier(mem_flags flags, ANYMETAL_HERE) { anymetal::simd_barrier(uint(flags), ANYMETAL_PLACE); }
inline void threadgroup_barrier(mem_flags flags, thread_scope, ANYMETAL_HERE) {
    threadgroup_barrier(flags, ANYMETAL_PLACE);
}
inline void simdgroup_barrier(mem_flags flags, thread_scope, ANYMETAL_HERE) { simdgroup_barrier(flags, ANYMETAL_PLACE); }
#if __METAL_VERSION__ >= 320
inline void atomic_thread_fence(mem_flags flags, memory_order order, thread_scope = thread_scope_device) {
#ifdef ANYMETAL_CHECKED
    anymetal_fence(uint(order));
#endif
#ifndef ANYMETAL_STRICT
    __atomic_thread_fence(int(order));
#endif
}
#endif

// Each function of a quadgroup is that of a simdgroup with a WIDTH of 4. `start` is the first of these lanes, `rank`
// the place of this lane among them. Lanes read all together, the same places. Apple's headers call each
// of these functions by a second name, and so do sources.
#define ANYMETAL_GATHER(VALUE, WIDTH, ...) \
    const anymetal::lanes<T> x(VALUE, ANYMETAL_PLACE, ##__VA_ARGS__); \
    const uint start = x.self & -WIDTH##u, rank = x.self - start; \
    (void)rank
#define ANYMETAL_ALSO(NAME, PARAMETERS, ...) \
    template <class T> inline T __metal_##NAME PARAMETERS { return NAME(__VA_ARGS__, ANYMETAL_PLACE); }
#define ANYMETAL_BOTH(MACRO, NAME, ...) MACRO(simd_##NAME, 32, __VA_ARGS__) MACRO(quad_##NAME, 4, __VA_ARGS__)

#define ANYMETAL_REDUCE(NAME, WIDTH, COMBINE) \
    template <class T> inline T NAME(T v, ANYMETAL_HERE) { \
        ANYMETAL_GATHER(v, WIDTH); \
        const uint first = x.first(WIDTH); \
        T a = x[first]; \
        for (uint i = 1; i < WIDTH; i++) { \
            const T b = x[start + i]; \
            if (start + i > first && x.has(start + i)) a = COMBINE; \
        } \
        return a; \
    } \
    ANYMETAL_ALSO(NAME, (T v, ANYMETAL_HERE), v)
ANYMETAL_BOTH(ANYMETAL_REDUCE, sum, T(a + b)) ANYMETAL_BOTH(ANYMETAL_REDUCE, product, T(a * b))
ANYMETAL_BOTH(ANYMETAL_REDUCE, max, max(a, b)) ANYMETAL_BOTH(ANYMETAL_REDUCE, min, min(a, b))
ANYMETAL_BOTH(ANYMETAL_REDUCE, and, T(a & b)) ANYMETAL_BOTH(ANYMETAL_REDUCE, or, T(a | b))
ANYMETAL_BOTH(ANYMETAL_REDUCE, xor, anymetal::exclusive_or(a, b))

#define ANYMETAL_SCAN(NAME, WIDTH, START, COMBINE, LIMIT) \
    template <class T> inline T NAME(T v, ANYMETAL_HERE) { \
        ANYMETAL_GATHER(v, WIDTH); \
        T a = T(START); \
        for (uint i = 0; i < WIDTH; i++) { \
            const T b = x[start + i]; \
            if (i < rank + LIMIT && x.has(start + i)) a = COMBINE; \
        } \
        return a; \
    } \
    ANYMETAL_ALSO(NAME, (T v, ANYMETAL_HERE), v)
ANYMETAL_BOTH(ANYMETAL_SCAN, prefix_exclusive_sum, 0, T(a + b), 0)
ANYMETAL_BOTH(ANYMETAL_SCAN, prefix_inclusive_sum, 0, T(a + b), 1)
ANYMETAL_BOTH(ANYMETAL_SCAN, prefix_exclusive_product, 1, T(a * b), 0)
ANYMETAL_BOTH(ANYMETAL_SCAN, prefix_inclusive_product, 1, T(a * b), 1)

// The argument of most of them has to be the same in all lanes.
#if defined(ANYMETAL_CHECKED) && !defined(ANYMETAL_STRICT)
#define ANYMETAL_SAME(WIDTH, N) ANYMETAL_IS_UNIFORM | (WIDTH == 4 ? ANYMETAL_IS_QUAD : 0) | uint(N) << 8
#else
#define ANYMETAL_SAME(WIDTH, N) 0
#endif
#define ANYMETAL_ANY(WIDTH, N) 0
// From a lane that is not active the value is undefined: all bits are set.
#define ANYMETAL_MOVE(NAME, WIDTH, SOURCE, FLAGS) \
    template <class T> ANYMETAL_TOUCHES T NAME(T v, ushort n, ANYMETAL_HERE) { \
        ANYMETAL_GATHER(v, WIDTH, FLAGS(WIDTH, n)); \
        const uint width = WIDTH; \
        return x.of(start, SOURCE, width, ANYMETAL_PLACE); \
    } \
    ANYMETAL_ALSO(NAME, (T v, ushort n, ANYMETAL_HERE), v, n)
ANYMETAL_BOTH(ANYMETAL_MOVE, shuffle, n, ANYMETAL_ANY) ANYMETAL_BOTH(ANYMETAL_MOVE, broadcast, n, ANYMETAL_SAME)
ANYMETAL_BOTH(ANYMETAL_MOVE, shuffle_xor, rank ^ n, ANYMETAL_SAME)
ANYMETAL_BOTH(ANYMETAL_MOVE, shuffle_up, rank >= n ? rank - n : rank, ANYMETAL_SAME)
ANYMETAL_BOTH(ANYMETAL_MOVE, shuffle_down, rank + n < width ? rank + n : rank, ANYMETAL_SAME)
ANYMETAL_BOTH(ANYMETAL_MOVE, shuffle_rotate_up, (rank - n) % width, ANYMETAL_SAME)
ANYMETAL_BOTH(ANYMETAL_MOVE, shuffle_rotate_down, (rank + n) % width, ANYMETAL_SAME)

#if __METAL_VERSION__ >= 240
// Segments of `modulo` lanes, a power of two, take what they lack from `fill`.
#define ANYMETAL_FILL(NAME, WIDTH, IS_INSIDE, SOURCE) \
    template <class T> ANYMETAL_TOUCHES T NAME(T v, T fill, ushort n, ushort modulo = WIDTH, ANYMETAL_HERE) { \
        T moved; \
        { \
            ANYMETAL_GATHER(v, WIDTH, ANYMETAL_SAME(WIDTH, n | uint(modulo) << 16)); \
            const uint mask = modulo - 1u, place = rank & mask; \
            moved = x.of(x.self - place + ((SOURCE) & mask), IS_INSIDE, ANYMETAL_PLACE); \
        } \
        ANYMETAL_GATHER(fill, WIDTH); \
        const uint mask = modulo - 1u, place = rank & mask; \
        const T filled = x.of(x.self - place + ((SOURCE) & mask), !(IS_INSIDE), ANYMETAL_PLACE); \
        return IS_INSIDE ? moved : filled; \
    } \
    ANYMETAL_ALSO(NAME, (T v, T fill, ushort n, ushort modulo = WIDTH, ANYMETAL_HERE), v, fill, n, modulo)
ANYMETAL_BOTH(ANYMETAL_FILL, shuffle_and_fill_down, place + n < modulo, place + n)
ANYMETAL_BOTH(ANYMETAL_FILL, shuffle_and_fill_up, place >= n, place + modulo - n)
#endif

#define ANYMETAL_VOTE(NAME, WIDTH, ALL) \
    struct NAME##_vote { \
        typedef ulong vote_t; \
        vote_t anymetal_votes; \
        NAME##_vote() = default; \
        constexpr explicit NAME##_vote(vote_t votes) : anymetal_votes(votes) {} \
        constexpr bool all() const { return (anymetal_votes & ALL) == ALL; } \
        constexpr bool any() const { return (anymetal_votes & ALL) != 0; } \
        constexpr explicit operator vote_t() const { return anymetal_votes; } \
    }; \
    inline NAME##_vote NAME##_ballot(bool v, ANYMETAL_HERE) { \
        typedef uint T; \
        ANYMETAL_GATHER(v, WIDTH); \
        ulong votes = 0; \
        for (uint i = 0; i < WIDTH; i++) { \
            const uint is_set = x[start + i]; \
            if (is_set && x.has(start + i)) votes |= 1ul << i; \
        } \
        return NAME##_vote(votes); \
    } \
    inline NAME##_vote NAME##_active_threads_mask(ANYMETAL_HERE) { return NAME##_ballot(true, ANYMETAL_PLACE); } \
    template <class T> inline T NAME##_broadcast_first(T v, ANYMETAL_HERE) { \
        ANYMETAL_GATHER(v, WIDTH); \
        return x[x.first(WIDTH)]; \
    } \
    inline bool NAME##_all(bool v, ANYMETAL_HERE) { return NAME##_and(uint(v), ANYMETAL_PLACE) != 0; } \
    inline bool NAME##_any(bool v, ANYMETAL_HERE) { return NAME##_or(uint(v), ANYMETAL_PLACE) != 0; } \
    inline bool NAME##_is_first(ANYMETAL_HERE) { \
        typedef uint T; \
        ANYMETAL_GATHER(0, WIDTH); \
        return x.self == x.first(WIDTH); \
    }
ANYMETAL_VOTE(simd, 32, 0xffffffff)
ANYMETAL_VOTE(quad, 4, 0xf)
#undef ANYMETAL_ALSO

} // namespace metal
