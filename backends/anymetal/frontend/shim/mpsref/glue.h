// How a kernel is called: included in front of the entry points that the runtime writes for each one.
#pragma once
#include "abi.h"

namespace mpsref {

// Buffers convert to whatever pointer or reference the kernel's parameter is.
struct pointer {
    void *data;
    template <class T> operator T *() const { return (T *)data; }
};
struct reference {
    void *data;
    template <class T> operator T &() const { return *(T *)data; }
};

// The position of thread t of a group, along an axis.
inline uint32_t place(const mpsref_group *g, uint32_t t, int axis) {
    return axis == 0 ? t % g->extent[0] : axis == 1 ? t / g->extent[0] % g->extent[1] : t / g->extent[0] / g->extent[1];
}

// An index or a size, as any of the types that MSL allows.
struct index {
    uint32_t x, y, z;
    operator uint() const { return x; }
    operator ushort() const { return ushort(x); }
    template <class T, int N> using vector = T __attribute__((ext_vector_type(N))); // `uint2(` would be a macro
    operator vector<uint, 2>() const { return uint2{x, y}; }
    operator vector<uint, 3>() const { return uint3{x, y, z}; }
    operator vector<ushort, 2>() const { return ushort2{ushort(x), ushort(y)}; }
    operator vector<ushort, 3>() const { return ushort3{ushort(x), ushort(y), ushort(z)}; }
};

template <class T> struct target;
template <class T> struct target<T *> { enum { bytes = 1, writable = 1 }; };
template <class T> struct target<const T *> { enum { bytes = 1, writable = 0 }; };
template <class T> struct target<T &> { enum { bytes = sizeof(T), writable = 1 }; };
template <class T> struct target<const T &> { enum { bytes = sizeof(T), writable = 0 }; };

template <int I, class F> struct parameter;
template <int I, class R, class First, class... Rest>
struct parameter<I, R (*)(First, Rest...)> : parameter<I - 1, R (*)(Rest...)> {};
template <class R, class First, class... Rest> struct parameter<0, R (*)(First, Rest...)> : target<First> {};

#ifndef MPSREF_CUDA
// The compiler's own check of arrays of known size (-fsanitize=array-bounds) calls this instead of going on.
struct check_place {
    const char *file;
    uint32_t line, column;
};
struct check_type {
    uint16_t kind, info;
    char name[1];
};
struct out_of_bounds {
    check_place place;
    const check_type *array, *index;
};
#endif

} // namespace mpsref

#ifdef MPSREF_CUDA
// A kernel of one thread a call, with PARAMETERS and their names, one pointer for each buffer.
#define MPSREF_ENTRY(NUMBER, BOUNDS, PARAMETERS, CALL, ...) \
    extern "C" __attribute__((global)) BOUNDS void mpsref_entry_##NUMBER PARAMETERS { \
        void *const buffers[] = {__VA_ARGS__}; \
        const uint32_t size = uint32_t(__nvvm_read_ptx_sreg_ntid_x()), index = uint32_t(__nvvm_read_ptx_sreg_ctaid_x()); \
        const uint32_t groups = uint32_t(__nvvm_read_ptx_sreg_nctaid_x()); \
        const mpsref_group group = {buffers, size, index, 0, 1, {index * size, 0, 0}, {index, 0, 0}, {size, 1, 1}, \
                                    {size, 1, 1}, {groups * size, 1, 1}, {groups, 1, 1}}; \
        const mpsref_group *const g = &group; \
        const uint32_t t = uint32_t(__nvvm_read_ptx_sreg_tid_x()); \
        CALL; \
    }
#define MPSREF_LOCAL(NUMBER) __attribute__((shared))
#define MPSREF_KEPT __attribute__((device, used))
#else
extern "C" {
const mpsref_sync_table *mpsref_sync;

void __ubsan_handle_out_of_bounds_abort(const mpsref::out_of_bounds *found, uint64_t index) {
    uint64_t length = 0;
    for (const char *c = found->array->name; *c; c++)
        if (*c == '[') {
            for (length = 0, c++; *c >= '0' && *c <= '9'; c++) length = length * 10 + uint64_t(*c - '0');
            break;
        }
    mpsref_sync->out_of_bounds(int64_t(index), length, found->place.line, found->place.column);
}

#if __METAL_VERSION__ >= 310
// The compiler calls this on CPUs that have no instruction for it. Rounds to nearest, ties to even; a NaN stays one.
__attribute__((used, weak, visibility("hidden"))) bfloat __truncsfbf2(float a) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, a);
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    const uint32_t rounded = is_nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
    return __builtin_bit_cast(bfloat, uint16_t(rounded >> 16));
}
#endif
}

#define MPSREF_GROUP_ENTRY(NUMBER, CALL) \
    extern "C" void mpsref_group_##NUMBER(const mpsref_group *g) { \
        _Pragma("clang loop vectorize(disable) interleave(disable)") \
        for (uint32_t k = 0, t = g->start; k < g->size; k++) { \
            CALL; \
            t += g->step; \
            t = t < g->size ? t : t - g->size; \
        } \
    }
#define MPSREF_THREAD_ENTRY(NUMBER, CALL) \
    extern "C" void mpsref_thread_##NUMBER(const mpsref_group *g, uint32_t t) { CALL; }

// Where the threadgroup variables of kernel NUMBER lie: the linker marks the ends of a section.
#ifdef MPSREF_APPLE
#define MPSREF_LOCAL(NUMBER) __attribute__((used, section("__DATA,mpsref_" #NUMBER)))
#define MPSREF_LOCAL_END(NUMBER, END) __asm("section$" #END "$__DATA$mpsref_" #NUMBER)
#else
#define MPSREF_LOCAL(NUMBER) __attribute__((used, retain, section("mpsref_" #NUMBER)))
#define MPSREF_LOCAL_END(NUMBER, END) __asm("__" #END "_mpsref_" #NUMBER)
#endif
#define MPSREF_LOCAL_EXTENT(NUMBER) \
    extern "C" __attribute__((visibility("hidden"))) uint8_t mpsref_first_##NUMBER[] MPSREF_LOCAL_END(NUMBER, start); \
    extern "C" __attribute__((visibility("hidden"))) uint8_t mpsref_end_##NUMBER[] MPSREF_LOCAL_END(NUMBER, stop); \
    extern "C" uint8_t *const mpsref_local_##NUMBER[2] = {mpsref_first_##NUMBER, mpsref_end_##NUMBER};
#define MPSREF_KEPT
#endif

// Threads a threadgroup, then for each buffer parameter how many bytes it needs at least and whether it is written.
#define MPSREF_PARAMETER(POSITION, KERNEL) \
    mpsref::parameter<POSITION, decltype(&KERNEL)>::bytes, mpsref::parameter<POSITION, decltype(&KERNEL)>::writable
#define MPSREF_ABOUT(NUMBER, ...) extern "C" MPSREF_KEPT const uint32_t mpsref_about_##NUMBER[] = {__VA_ARGS__};
