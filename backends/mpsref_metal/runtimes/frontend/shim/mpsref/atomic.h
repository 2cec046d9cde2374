// Relaxed atomics on int, unsigned int and bool in device and threadgroup memory: all that MSL 2.3 has.
#pragma once

#ifdef MPSREF_STRICT
#define MPSREF_EACH_SPACE(M, T, OF) M(T, OF, device) M(T, OF, threadgroup)
#define atomic_int mpsref_atomic_int // OpenCL knows these two by itself, as other types
#define atomic_uint mpsref_atomic_uint
#else
#define MPSREF_EACH_SPACE(M, T, OF) M(T, OF, )
#endif

namespace metal {

enum memory_order { memory_order_relaxed = 0 };

struct atomic_int { int mpsref_value; };
struct atomic_uint { uint mpsref_value; };
struct atomic_bool { bool mpsref_value; };

#ifdef MPSREF_STRICT // a plain expression with the right types: this pass never runs it
#define MPSREF_ATOMIC(BUILTIN, ...) (p->mpsref_value)
#else
#define MPSREF_ATOMIC(BUILTIN, ...) BUILTIN(&p->mpsref_value, ##__VA_ARGS__, __ATOMIC_RELAXED)
#endif

#define MPSREF_ATOMIC_ACCESS(T, OF, SPACE) \
    inline OF atomic_load_explicit(const volatile SPACE T *p, memory_order) { return MPSREF_ATOMIC(__atomic_load_n); } \
    inline void atomic_store_explicit(volatile SPACE T *p, OF v, memory_order) { (void)MPSREF_ATOMIC(__atomic_store_n, v); } \
    inline OF atomic_exchange_explicit(volatile SPACE T *p, OF v, memory_order) { \
        return MPSREF_ATOMIC(__atomic_exchange_n, v); \
    } \
    inline bool atomic_compare_exchange_weak_explicit(volatile SPACE T *p, thread OF *expected, OF v, memory_order, \
                                                      memory_order) { \
        return MPSREF_ATOMIC(__atomic_compare_exchange_n, expected, v, true, __ATOMIC_RELAXED); \
    }
#define MPSREF_ATOMIC_FETCH(T, OF, SPACE, NAME) \
    inline OF atomic_fetch_##NAME##_explicit(volatile SPACE T *p, OF v, memory_order) { \
        return MPSREF_ATOMIC(__atomic_fetch_##NAME, v); \
    }
#define MPSREF_ATOMIC_ARITHMETIC(T, OF, SPACE) \
    MPSREF_ATOMIC_ACCESS(T, OF, SPACE) \
    MPSREF_ATOMIC_FETCH(T, OF, SPACE, add) MPSREF_ATOMIC_FETCH(T, OF, SPACE, sub) \
    MPSREF_ATOMIC_FETCH(T, OF, SPACE, min) MPSREF_ATOMIC_FETCH(T, OF, SPACE, max) \
    MPSREF_ATOMIC_FETCH(T, OF, SPACE, and) MPSREF_ATOMIC_FETCH(T, OF, SPACE, or) \
    MPSREF_ATOMIC_FETCH(T, OF, SPACE, xor)
MPSREF_EACH_SPACE(MPSREF_ATOMIC_ARITHMETIC, atomic_int, int)
MPSREF_EACH_SPACE(MPSREF_ATOMIC_ARITHMETIC, atomic_uint, uint)
MPSREF_EACH_SPACE(MPSREF_ATOMIC_ACCESS, atomic_bool, bool)
#undef MPSREF_ATOMIC_ARITHMETIC
#undef MPSREF_ATOMIC_FETCH
#undef MPSREF_ATOMIC_ACCESS
#undef MPSREF_ATOMIC
#undef MPSREF_EACH_SPACE

} // namespace metal
