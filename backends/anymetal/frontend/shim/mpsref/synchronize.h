// Barriers and simdgroup functions. On a processor each one stops its thread until the launcher lets it go on; the place
// in the source tells apart the places where threads of one group may wait. On an NVIDIA GPU a simdgroup is a warp.
#pragma once

#define MPSREF_HERE uint mpsref_line = __builtin_LINE(), uint mpsref_column = __builtin_COLUMN()

#ifdef MPSREF_STRICT
#define MPSREF_SYNC(...)
#define MPSREF_GATHER(VALUE) const thread mpsref::lanes<T> x{}
#elif defined(MPSREF_CUDA)
#define MPSREF_SYNC(...) mpsref::__VA_ARGS__
#define MPSREF_GATHER(VALUE) const mpsref::lanes<T> x(VALUE)
#define MPSREF_SIMD_WIDTH 32
#define MPSREF_SIMD_BYTES 16
#else
#define MPSREF_SYNC(...) mpsref_sync->__VA_ARGS__
#define MPSREF_GATHER(VALUE) const mpsref::lanes<T> x(VALUE, mpsref_line, mpsref_column)
#include "abi.h"
extern "C" const mpsref_sync_table *mpsref_sync;
#endif

namespace mpsref {

#ifdef MPSREF_CUDA
inline void barrier(uint, uint) { asm volatile("bar.sync 0;" ::: "memory"); }
inline void exchange(const void *, uint, uint, uint) { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
#endif

// What the active lanes of this simdgroup brought along, after all of them have arrived.
template <class T> struct lanes {
#ifdef MPSREF_STRICT
    uint active, self;
    T operator[](uint) const { return T(); }
#elif defined(MPSREF_CUDA) // all lanes that have not returned take part, and read the value of a lane together
    uint self, active;
    T mine;
    lanes(T value) : mine(value) {
        static_assert(sizeof(T) <= MPSREF_SIMD_BYTES, "simdgroup functions take scalars and vectors of up to 16 bytes");
        asm("mov.u32 %0, %%laneid;" : "=r"(self));
        asm volatile("{ .reg .pred p; setp.eq.u32 p, 0, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }" : "=r"(active));
    }
    T operator[](uint lane) const {
        enum { words = (sizeof(T) + 3) / 4 };
        uint word[words] = {};
        __builtin_memcpy(word, &mine, sizeof(T));
        for (uint i = 0; i < words; i++)
            asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(word[i]) : "r"(word[i]), "r"(lane % 32));
        T value;
        __builtin_memcpy(&value, word, sizeof(T));
        return value;
    }
#else
    uint self, active;
    T value[MPSREF_SIMD_WIDTH];
    lanes(T mine, uint line, uint column) : self(mpsref_sync->lane()) {
        static_assert(sizeof(T) <= MPSREF_SIMD_BYTES, "simdgroup functions take scalars and vectors of up to 16 bytes");
        const mpsref_exchange *all = mpsref_sync->exchange(&mine, sizeof mine, line, column);
        active = all->active;
        for (uint i = 0; i < MPSREF_SIMD_WIDTH; i++) __builtin_memcpy(&value[i], all->value[i], sizeof(T));
    }
    T operator[](uint lane) const { return value[lane % MPSREF_SIMD_WIDTH]; }
#endif
    bool has(uint lane) const { return lane < 32 && (active >> lane & 1); }
    uint first() const { return uint(__builtin_ctz(active)); }
};

} // namespace mpsref

namespace metal {

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
inline constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }

inline void threadgroup_barrier(mem_flags, MPSREF_HERE) { MPSREF_SYNC(barrier(mpsref_line, mpsref_column)); }
inline void simdgroup_barrier(mem_flags, MPSREF_HERE) {
    uint nothing = 0;
    (void)nothing;
    MPSREF_SYNC(exchange(&nothing, sizeof nothing, mpsref_line, mpsref_column));
}

#define MPSREF_REDUCE(NAME, COMBINE) \
    template <class T> inline T NAME(T v, MPSREF_HERE) { \
        MPSREF_GATHER(v); \
        uint i = x.first(); \
        T a = x[i]; \
        while (++i < 32) \
            if (x.has(i)) { T b = x[i]; a = COMBINE; } \
        return a; \
    }
MPSREF_REDUCE(simd_sum, T(a + b))
MPSREF_REDUCE(simd_product, T(a * b))
MPSREF_REDUCE(simd_max, max(a, b))
MPSREF_REDUCE(simd_min, min(a, b))
MPSREF_REDUCE(simd_and, T(a & b))
MPSREF_REDUCE(simd_or, T(a | b))
MPSREF_REDUCE(simd_xor, T(a ^ b))
#undef MPSREF_REDUCE

#define MPSREF_SCAN(NAME, START, COMBINE, LIMIT) \
    template <class T> inline T NAME(T v, MPSREF_HERE) { \
        MPSREF_GATHER(v); \
        T a = START; \
        for (uint i = 0; i < 32; i++) \
            if (x.has(i)) { \
                T b = x[i]; \
                if (i < x.self + LIMIT) a = COMBINE; \
            } \
        return a; \
    }
MPSREF_SCAN(simd_prefix_exclusive_sum, T(0), T(a + b), 0)
MPSREF_SCAN(simd_prefix_inclusive_sum, T(0), T(a + b), 1)
MPSREF_SCAN(simd_prefix_exclusive_product, T(1), T(a * b), 0)
MPSREF_SCAN(simd_prefix_inclusive_product, T(1), T(a * b), 1)
#undef MPSREF_SCAN

// From a lane that is not active the value is undefined: all bits are set.
#define MPSREF_MOVE(NAME, ARGUMENT, SOURCE) \
    template <class T> inline T NAME(T v, ushort ARGUMENT, MPSREF_HERE) { \
        MPSREF_GATHER(v); \
        return x[SOURCE]; \
    }
MPSREF_MOVE(simd_shuffle, lane, lane)
MPSREF_MOVE(simd_broadcast, lane, lane)
MPSREF_MOVE(simd_shuffle_xor, mask, x.self ^ mask)
MPSREF_MOVE(simd_shuffle_up, delta, x.self >= delta ? x.self - delta : x.self)
MPSREF_MOVE(simd_shuffle_down, delta, x.self + delta < 32 ? x.self + delta : x.self)
MPSREF_MOVE(simd_shuffle_rotate_up, delta, x.self + 32 - delta % 32)
MPSREF_MOVE(simd_shuffle_rotate_down, delta, x.self + delta)
#undef MPSREF_MOVE

#if __METAL_VERSION__ >= 240
#define MPSREF_FILL(NAME, INSIDE, SOURCE, REST) \
    template <class T> inline T NAME(T v, T fill, ushort delta, MPSREF_HERE) { \
        T moved; \
        { \
            MPSREF_GATHER(v); \
            moved = x[SOURCE]; \
        } \
        MPSREF_GATHER(fill); \
        return INSIDE ? moved : x[REST]; \
    }
MPSREF_FILL(simd_shuffle_and_fill_down, x.self + delta < 32, x.self + delta, x.self + delta - 32)
MPSREF_FILL(simd_shuffle_and_fill_up, x.self >= delta, x.self - delta, x.self + 32 - delta)
#undef MPSREF_FILL
#endif

template <class T> inline T simd_broadcast_first(T v, MPSREF_HERE) {
    MPSREF_GATHER(v);
    return x[x.first()];
}
inline bool simd_all(bool v, MPSREF_HERE) { return simd_and(uint(v), mpsref_line, mpsref_column) != 0; }
inline bool simd_any(bool v, MPSREF_HERE) { return simd_or(uint(v), mpsref_line, mpsref_column) != 0; }
inline bool simd_is_first(MPSREF_HERE) {
    typedef uint T;
    MPSREF_GATHER(0);
    return x.self == x.first();
}

struct simd_vote {
    typedef ulong vote_t;
    vote_t mpsref_votes;
    bool all() const { return mpsref_votes == 0xffffffffu; }
    bool any() const { return mpsref_votes != 0; }
    explicit operator vote_t() const { return mpsref_votes; }
};
inline simd_vote simd_ballot(bool v, MPSREF_HERE) {
    typedef uint T;
    MPSREF_GATHER(v);
    ulong votes = 0;
    for (uint i = 0; i < 32; i++)
        if (x.has(i) && x[i]) votes |= 1ul << i;
    return simd_vote{votes};
}
inline simd_vote simd_active_threads_mask(MPSREF_HERE) { return simd_ballot(true, mpsref_line, mpsref_column); }

} // namespace metal

#undef MPSREF_HERE
#undef MPSREF_SYNC
#undef MPSREF_GATHER
