// Atomic objects in device and threadgroup memory. MSL 2.3 has them for int, unsigned int and bool, 3.0 for float, and
// 2.4 for minima and maxima of unsigned long.
#pragma once
#ifdef ANYMETAL_CHECKED
#include "abi.h"
#endif

#ifdef ANYMETAL_STRICT
#define atomic_int anymetal_atomic_int // OpenCL knows these by itself, as other types
#define atomic_uint anymetal_atomic_uint
#define atomic_float anymetal_atomic_float
#define atomic_ulong anymetal_atomic_ulong
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

template <class T> struct anymetal_atomic;
#define ANYMETAL_ATOMIC(T) \
    template <> struct anymetal_atomic<T> { T anymetal_value; }; \
    typedef anymetal_atomic<T> atomic_##T;
ANYMETAL_ATOMIC(int) ANYMETAL_ATOMIC(uint) ANYMETAL_ATOMIC(bool)
#if __METAL_VERSION__ >= 240
ANYMETAL_ATOMIC(ulong)
template <class T> using atomic = anymetal_atomic<T>;
template <class T> using _atomic = anymetal_atomic<T>;
#endif
#if __METAL_VERSION__ >= 300
ANYMETAL_ATOMIC(float)
#endif
#undef ANYMETAL_ATOMIC

} // namespace metal

namespace anymetal {

// What a pointer to an atomic object, in any address space where these may be, points to.
template <class A> struct atomic_of {};
#ifdef ANYMETAL_STRICT
template <class T> struct atomic_of<device metal::anymetal_atomic<T>> { typedef T type; };
template <class T>
struct atomic_of<threadgroup metal::anymetal_atomic<T>> : only<__is_integral(T) && sizeof(T) < 8, T> {};
template <class A> using atomic_value = typename atomic_of<metal::remove_cv_t<A>>::type;
#define ANYMETAL_ATOMIC(BUILTIN, ...) (p->anymetal_value) // the type is right, and this pass never runs it
#else
template <class T> struct atomic_of<metal::anymetal_atomic<T>> { typedef T type; };
template <class A> using atomic_value = typename atomic_of<metal::remove_cvref_t<metal::remove_cv_t<A>>>::type;
#define ANYMETAL_ATOMIC(BUILTIN, ...) BUILTIN((volatile anymetal::atomic_value<A> *)&p->anymetal_value, ##__VA_ARGS__)
#endif
#ifdef ANYMETAL_CHECKED // only the launcher lets an exchange fail, so that a launch can be repeated
#define ANYMETAL_IS_WEAK false
#define ANYMETAL_TELL(WHAT, ORDER, VALUE) \
    anymetal_atomic_access((const volatile void *)&p->anymetal_value, sizeof(p->anymetal_value), WHAT, uint(ORDER), VALUE)
#else
#define ANYMETAL_IS_WEAK true
#define ANYMETAL_TELL(WHAT, ORDER, VALUE) 0
#endif
template <class A, bool C> using atomic_if = typename only<C, atomic_value<A>>::type;
template <class A> using atomic_bits = atomic_if<A, __is_integral(atomic_value<A>) && sizeof(atomic_value<A>) == 4>;
template <class A> using atomic_sum = atomic_if<A, sizeof(atomic_value<A>) == 4>;
template <class A> using atomic_long = atomic_if<A, sizeof(atomic_value<A>) == 8>;

} // namespace anymetal

namespace metal {

template <class A> ANYMETAL_TOUCHES anymetal::atomic_value<A> atomic_load_explicit(A *p, memory_order order) {
    anymetal::atomic_value<A> value;
    (void)ANYMETAL_TELL(ANYMETAL_LOAD, order, nullptr);
    (void)ANYMETAL_ATOMIC(__atomic_load, &value, int(order));
    return value;
}
template <class A> ANYMETAL_TOUCHES void atomic_store_explicit(A *p, anymetal::atomic_value<A> v, memory_order order) {
    (void)ANYMETAL_TELL(ANYMETAL_STORE, order, (const void *)&v);
    (void)ANYMETAL_ATOMIC(__atomic_store, &v, int(order));
}
template <class A>
ANYMETAL_TOUCHES anymetal::atomic_value<A> atomic_exchange_explicit(A *p, anymetal::atomic_value<A> v, memory_order order) {
    anymetal::atomic_value<A> before;
    (void)ANYMETAL_TELL(ANYMETAL_CHANGE, order, nullptr);
    (void)ANYMETAL_ATOMIC(__atomic_exchange, &v, &before, int(order));
    return before;
}
template <class A>
ANYMETAL_TOUCHES bool atomic_compare_exchange_weak_explicit(A *p, thread anymetal::atomic_value<A> *expected,
                                                          anymetal::atomic_value<A> v, memory_order success,
                                                          memory_order failure) {
    if (ANYMETAL_TELL(ANYMETAL_COMPARE, success, (const void *)expected)) return false;
    return ANYMETAL_ATOMIC(__atomic_compare_exchange, expected, &v, ANYMETAL_IS_WEAK, int(success), int(failure));
}

#define ANYMETAL_FETCH(NAME, KIND) \
    template <class A> \
    ANYMETAL_TOUCHES anymetal::KIND<A> atomic_fetch_##NAME##_explicit(A *p, anymetal::atomic_value<A> v, memory_order order) \
    { \
        (void)ANYMETAL_TELL(ANYMETAL_CHANGE, order, nullptr); \
        return ANYMETAL_ATOMIC(__atomic_fetch_##NAME, v, int(order)); \
    }
ANYMETAL_FETCH(add, atomic_sum) ANYMETAL_FETCH(sub, atomic_sum) ANYMETAL_FETCH(min, atomic_bits)
ANYMETAL_FETCH(max, atomic_bits) ANYMETAL_FETCH(and, atomic_bits) ANYMETAL_FETCH(or, atomic_bits)
ANYMETAL_FETCH(xor, atomic_bits)
#define ANYMETAL_EXTREME(NAME) \
    template <class A, class = anymetal::atomic_long<A>> \
    ANYMETAL_TOUCHES void atomic_##NAME##_explicit(A *p, anymetal::atomic_value<A> v, memory_order order) { \
        (void)ANYMETAL_TELL(ANYMETAL_CHANGE, order, nullptr); \
        (void)ANYMETAL_ATOMIC(__atomic_fetch_##NAME, v, int(order)); \
    }
ANYMETAL_EXTREME(min) ANYMETAL_EXTREME(max)
#undef ANYMETAL_ATOMIC
#undef ANYMETAL_TELL
#undef ANYMETAL_IS_WEAK

} // namespace metal
