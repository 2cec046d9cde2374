// Relaxed atomics on int, unsigned int and bool in device and threadgroup memory, and from MSL 3.0 on float in device
// memory.
#pragma once

#ifdef MPSREF_STRICT
#define MPSREF_EACH_SPACE(M, T, OF) M(T, OF, device) M(T, OF, threadgroup)
#define atomic_int mpsref_atomic_int // OpenCL knows these by itself, as other types
#define atomic_uint mpsref_atomic_uint
#if __METAL_VERSION__ >= 300
#define atomic_float mpsref_atomic_float
#endif
#else
#define MPSREF_EACH_SPACE(M, T, OF) M(T, OF, )
#endif

#define MPSREF_RELAXED 0 // __ATOMIC_RELAXED, which is a macro of the target

namespace metal {

enum memory_order { memory_order_relaxed = 0 };

template <class T> struct mpsref_atomic;
template <> struct mpsref_atomic<int> { int mpsref_value; };
template <> struct mpsref_atomic<uint> { uint mpsref_value; };
template <> struct mpsref_atomic<bool> { bool mpsref_value; };
typedef mpsref_atomic<int> atomic_int;
typedef mpsref_atomic<uint> atomic_uint;
typedef mpsref_atomic<bool> atomic_bool;
#if __METAL_VERSION__ >= 240
template <class T> using atomic = mpsref_atomic<T>;
#endif
#if __METAL_VERSION__ >= 300
template <> struct mpsref_atomic<float> { float mpsref_value; };
typedef mpsref_atomic<float> atomic_float;
#endif

#ifdef MPSREF_STRICT // a plain expression with the right types: this pass never runs it
#define MPSREF_ATOMIC(BUILTIN, ...) (p->mpsref_value)
#else
#define MPSREF_ATOMIC(BUILTIN, ...) BUILTIN(&p->mpsref_value, ##__VA_ARGS__, MPSREF_RELAXED)
#endif

#define MPSREF_ATOMIC_ACCESS(T, OF, SPACE) \
    inline OF atomic_load_explicit(const volatile SPACE T *p, memory_order) { return MPSREF_ATOMIC(__atomic_load_n); } \
    inline void atomic_store_explicit(volatile SPACE T *p, OF v, memory_order) { (void)MPSREF_ATOMIC(__atomic_store_n, v); } \
    inline OF atomic_exchange_explicit(volatile SPACE T *p, OF v, memory_order) { \
        return MPSREF_ATOMIC(__atomic_exchange_n, v); \
    } \
    inline bool atomic_compare_exchange_weak_explicit(volatile SPACE T *p, thread OF *expected, OF v, memory_order, \
                                                      memory_order) { \
        return MPSREF_ATOMIC(__atomic_compare_exchange_n, expected, v, true, MPSREF_RELAXED); \
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
#if __METAL_VERSION__ >= 300
#ifdef MPSREF_STRICT
MPSREF_ATOMIC_ACCESS(atomic_float, float, device)
#else // the builtins take integers
inline float atomic_load_explicit(const volatile atomic_float *p, memory_order) {
    return __builtin_bit_cast(float, __atomic_load_n((const volatile int *)p, MPSREF_RELAXED));
}
inline void atomic_store_explicit(volatile atomic_float *p, float v, memory_order) {
    __atomic_store_n((volatile int *)p, __builtin_bit_cast(int, v), MPSREF_RELAXED);
}
inline float atomic_exchange_explicit(volatile atomic_float *p, float v, memory_order) {
    int before = __atomic_exchange_n((volatile int *)p, __builtin_bit_cast(int, v), MPSREF_RELAXED);
    return __builtin_bit_cast(float, before);
}
inline bool atomic_compare_exchange_weak_explicit(volatile atomic_float *p, float *expected, float v, memory_order,
                                                  memory_order) {
    return __atomic_compare_exchange_n((volatile int *)p, (int *)expected, __builtin_bit_cast(int, v), true,
                                       MPSREF_RELAXED, MPSREF_RELAXED);
}
#endif
MPSREF_ATOMIC_FETCH(atomic_float, float, device, add)
MPSREF_ATOMIC_FETCH(atomic_float, float, device, sub)
#endif
#undef MPSREF_ATOMIC_ARITHMETIC
#undef MPSREF_ATOMIC_FETCH
#undef MPSREF_ATOMIC_ACCESS
#undef MPSREF_ATOMIC
#undef MPSREF_EACH_SPACE

} // namespace metal
