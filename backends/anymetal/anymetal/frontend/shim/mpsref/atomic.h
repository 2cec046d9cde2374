// Atomic objects in device and threadgroup memory. MSL 2.3 has them for int, unsigned int and bool, 3.0 for float, and
// 2.4 for minima and maxima of unsigned long.
#pragma once
#ifdef MPSREF_CHECKED
#include "abi.h"
#endif

#ifdef MPSREF_STRICT
#define atomic_int mpsref_atomic_int // OpenCL knows these by itself, as other types
#define atomic_uint mpsref_atomic_uint
#define atomic_float mpsref_atomic_float
#define atomic_ulong mpsref_atomic_ulong
#endif

namespace metal {

enum memory_order {
    memory_order_relaxed = 0, // as in C
#if __METAL_VERSION__ >= 320
    memory_order_acquire = 2,
    memory_order_release = 3,
    memory_order_acq_rel = 4,
    memory_order_seq_cst = 5
#endif
};

template <class T> struct mpsref_atomic;
#define MPSREF_ATOMIC(T) \
    template <> struct mpsref_atomic<T> { T mpsref_value; }; \
    typedef mpsref_atomic<T> atomic_##T;
MPSREF_ATOMIC(int) MPSREF_ATOMIC(uint) MPSREF_ATOMIC(bool)
#if __METAL_VERSION__ >= 240
MPSREF_ATOMIC(ulong)
template <class T> using atomic = mpsref_atomic<T>;
template <class T> using _atomic = mpsref_atomic<T>;
#endif
#if __METAL_VERSION__ >= 300
MPSREF_ATOMIC(float)
#endif
#undef MPSREF_ATOMIC

} // namespace metal

namespace mpsref {

// What a pointer to an atomic object, in any address space where these may be, points to.
template <class A> struct atomic_of {};
#ifdef MPSREF_STRICT
template <class T> struct atomic_of<device metal::mpsref_atomic<T>> { typedef T type; };
template <class T>
struct atomic_of<threadgroup metal::mpsref_atomic<T>> : only<__is_integral(T) && sizeof(T) < 8, T> {};
template <class A> using atomic_value = typename atomic_of<metal::remove_cv_t<A>>::type;
#define MPSREF_ATOMIC(BUILTIN, ...) (p->mpsref_value) // the type is right, and this pass never runs it
#else
template <class T> struct atomic_of<metal::mpsref_atomic<T>> { typedef T type; };
template <class A> using atomic_value = typename atomic_of<metal::remove_cvref_t<metal::remove_cv_t<A>>>::type;
#define MPSREF_ATOMIC(BUILTIN, ...) BUILTIN((volatile mpsref::atomic_value<A> *)&p->mpsref_value, ##__VA_ARGS__)
#endif
#ifdef MPSREF_CHECKED
#define MPSREF_TELL(IS_WRITE) \
    mpsref_atomic_access((const volatile void *)&p->mpsref_value, sizeof(p->mpsref_value), IS_WRITE, uint(order))
#else
#define MPSREF_TELL(IS_WRITE)
#endif
template <class A, bool C> using atomic_if = typename only<C, atomic_value<A>>::type;
template <class A> using atomic_bits = atomic_if<A, __is_integral(atomic_value<A>) && sizeof(atomic_value<A>) == 4>;
template <class A> using atomic_sum = atomic_if<A, sizeof(atomic_value<A>) == 4>;
template <class A> using atomic_long = atomic_if<A, sizeof(atomic_value<A>) == 8>;

} // namespace mpsref

namespace metal {

template <class A> MPSREF_TOUCHES mpsref::atomic_value<A> atomic_load_explicit(A *p, memory_order order) {
    mpsref::atomic_value<A> value;
    MPSREF_TELL(0);
    (void)MPSREF_ATOMIC(__atomic_load, &value, int(order));
    return value;
}
template <class A> MPSREF_TOUCHES void atomic_store_explicit(A *p, mpsref::atomic_value<A> v, memory_order order) {
    MPSREF_TELL(2);
    (void)MPSREF_ATOMIC(__atomic_store, &v, int(order));
}
template <class A>
MPSREF_TOUCHES mpsref::atomic_value<A> atomic_exchange_explicit(A *p, mpsref::atomic_value<A> v, memory_order order) {
    mpsref::atomic_value<A> before;
    MPSREF_TELL(1);
    (void)MPSREF_ATOMIC(__atomic_exchange, &v, &before, int(order));
    return before;
}
template <class A>
MPSREF_TOUCHES bool atomic_compare_exchange_weak_explicit(A *p, thread mpsref::atomic_value<A> *expected,
                                                          mpsref::atomic_value<A> v, memory_order success,
                                                          memory_order failure) {
    const memory_order order = success;
    (void)order;
    MPSREF_TELL(1);
    return MPSREF_ATOMIC(__atomic_compare_exchange, expected, &v, true, int(success), int(failure));
}

#define MPSREF_FETCH(NAME, KIND) \
    template <class A> \
    MPSREF_TOUCHES mpsref::KIND<A> atomic_fetch_##NAME##_explicit(A *p, mpsref::atomic_value<A> v, memory_order order) \
    { \
        MPSREF_TELL(1); \
        return MPSREF_ATOMIC(__atomic_fetch_##NAME, v, int(order)); \
    }
MPSREF_FETCH(add, atomic_sum) MPSREF_FETCH(sub, atomic_sum) MPSREF_FETCH(min, atomic_bits)
MPSREF_FETCH(max, atomic_bits) MPSREF_FETCH(and, atomic_bits) MPSREF_FETCH(or, atomic_bits)
MPSREF_FETCH(xor, atomic_bits)
#define MPSREF_EXTREME(NAME) \
    template <class A, class = mpsref::atomic_long<A>> \
    MPSREF_TOUCHES void atomic_##NAME##_explicit(A *p, mpsref::atomic_value<A> v, memory_order order) { \
        MPSREF_TELL(1); \
        (void)MPSREF_ATOMIC(__atomic_fetch_##NAME, v, int(order)); \
    }
MPSREF_EXTREME(min) MPSREF_EXTREME(max)
#undef MPSREF_ATOMIC
#undef MPSREF_TELL

} // namespace metal
