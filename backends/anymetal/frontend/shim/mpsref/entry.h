// How a kernel is called: what the line that the front end writes behind a source expands to. A library has one kernel.
#pragma once
#include "abi.h"

namespace mpsref {

// A buffer, or threadgroup memory: converts to whatever pointer or reference the kernel's parameter is.
struct pointer {
    void *data;
    template <class T> operator T *() const { return (T *)data; }
    template <class T> operator T &() const { return *(T *)data; }
};

// The position of thread t of a group, along an axis.
inline uint place(const mpsref_group *g, uint t, int axis) {
    return axis == 0 ? t % g->extent[0] : axis == 1 ? t / g->extent[0] % g->extent[1] : t / g->extent[0] / g->extent[1];
}

// An index or a size, as any of the types that MSL allows.
struct index {
    uint x, y, z;
    template <class T, class = if_integer<T>> operator T() const { return T(x); }
    template <class T> operator vector<T, 2>() const { return vector<T, 2>{T(x), T(y)}; }
    template <class T> operator vector<T, 3>() const { return vector<T, 3>{T(x), T(y), T(z)}; }
};

// For each parameter that is memory: bytes of what it points or refers to, alignment, whether it is written, whether it
// is a reference. The first number is that of the threads of a threadgroup.
template <class T> struct target { enum { count = 0, bytes = 0, alignment = 0, is_writable = 0, is_reference = 0 }; };
template <class T> struct target<T *> {
    enum { count = 4, bytes = sizeof(T), alignment = alignof(T), is_writable = !__is_const(T), is_reference = 0 };
};
template <> struct target<void *> : target<char *> {};
template <> struct target<const void *> : target<const char *> {};
template <class T> struct target<T &> : target<T *> { enum { is_reference = 1 }; };
template <class F> struct about;
template <class R, class... P> struct about<R (*)(P...)> {
    enum { count = (1 + ... + target<P>::count) };
    uint numbers[count];
    constexpr about(uint threads) : numbers{threads} {
        uint at = 1;
        (add<target<P>>(at), ...);
    }
    template <class T> constexpr void add(uint &at) {
        const uint found[] = {T::bytes, T::alignment, T::is_writable, T::is_reference};
        for (int i = 0; i < T::count; i++) numbers[at++] = found[i];
    }
};

#ifndef MPSREF_CUDA
// The compiler's own check of arrays of known size (-fsanitize=array-bounds) calls this instead of going on.
struct check_place { const char *file; uint line, column; };
struct check_type { uint16_t kind, info; char name[1]; };
struct out_of_bounds { check_place place; const check_type *array, *index; };
#endif

} // namespace mpsref

#define MPSREF_CODE extern "C" [[clang::sycl_external]]
// Only functions are emitted on their own: this one takes data along.
#define MPSREF_DATA(TYPE, NAME, ...) \
    extern "C" const TYPE NAME; \
    const TYPE NAME = __VA_ARGS__; \
    MPSREF_CODE const void *NAME##_address() { return &NAME; }

#define MPSREF_ABOUT(THREADS, ...) MPSREF_DATA(mpsref::about<decltype(__VA_ARGS__)>, mpsref_about, {THREADS})

#ifdef MPSREF_CUDA
// A kernel of one thread a call. The launcher passes the buffers, by index.
struct mpsref_arguments { void *buffers[MPSREF_MAX_BUFFERS]; };
#define MPSREF_LOCAL
#define MPSREF_ENTRY(THREADS, ...) \
    MPSREF_CODE __attribute__((nvptx_kernel)) void mpsref_thread(const mpsref_arguments arguments) { \
        const uint size = __nvvm_read_ptx_sreg_ntid_x(), index = __nvvm_read_ptx_sreg_ctaid_x(); \
        const uint groups = __nvvm_read_ptx_sreg_nctaid_x(); \
        const mpsref_group group = {arguments.buffers, nullptr, size, index, 0, 1, {index * size, 0, 0}, \
                                    {index, 0, 0}, {size, 1, 1}, {size, 1, 1}, {groups * size, 1, 1}, {groups, 1, 1}}; \
        const mpsref_group *const g = &group; \
        const uint t = __nvvm_read_ptx_sreg_tid_x(); \
        __VA_ARGS__; \
    }
#else
// The threadgroup variables lie in a section of their own. The linker marks its ends; without variables both are null.
#ifdef MPSREF_APPLE
#define MPSREF_LOCAL __attribute__((used, section("__DATA,mpsref_locals")))
#define MPSREF_LOCAL_END(END) __asm("section$" #END "$__DATA$mpsref_locals")
#else
#define MPSREF_LOCAL __attribute__((used, retain, section("mpsref_locals")))
#define MPSREF_LOCAL_END(END) __asm("__" #END "_mpsref_locals")
#endif
extern "C" __attribute__((weak, visibility("hidden"))) uint8_t mpsref_local_first[] MPSREF_LOCAL_END(start);
extern "C" __attribute__((weak, visibility("hidden"))) uint8_t mpsref_local_end[] MPSREF_LOCAL_END(stop);
struct mpsref_extent { uint8_t *first, *end; };
#define MPSREF_ENTRY(THREADS, ...) \
    MPSREF_DATA(mpsref_extent, mpsref_local, {mpsref_local_first, mpsref_local_end}) \
    MPSREF_CODE void mpsref_thread(const mpsref_group *g, uint t) { __VA_ARGS__; }

MPSREF_CODE __attribute__((visibility("hidden"))) void __ubsan_handle_out_of_bounds_abort(
    const mpsref::out_of_bounds *found, uint64_t index
) {
    uint64_t length = 0;
    for (const char *c = found->array->name; *c; c++)
        if (*c == '[') {
            for (length = 0, c++; *c >= '0' && *c <= '9'; c++) length = length * 10 + uint64_t(*c - '0');
            break;
        }
    mpsref_out_of_bounds(int64_t(index), length, found->place.line, found->place.column);
}

#if __METAL_VERSION__ >= 310
// The compiler calls this on CPUs that have no instruction for it. Rounds to nearest, ties to even; a NaN stays one.
MPSREF_CODE __attribute__((weak, visibility("hidden"))) bfloat __truncsfbf2(float a) {
    const uint bits = mpsref::bits<uint>(a);
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    const uint rounded = is_nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
    return mpsref::bits<bfloat>(uint16_t(rounded >> 16));
}
#endif
#endif
