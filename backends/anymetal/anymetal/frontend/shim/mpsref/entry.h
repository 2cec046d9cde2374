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

// A tensor, which is in a buffer.
struct value {
    const void *data;
    template <class T> operator T() const { return *(const T *)data; }
};

// Buffers that follow each other, as an array of pointers.
struct pointers {
    void *const MPSREF_UNTOLD *first;
    template <class T, size_t N> operator metal::array<T *, N>() const {
        metal::array<T *, N> all;
        for (size_t i = 0; i < N; i++) all[i] = (T *)first[i];
        return all;
    }
};

// The position of thread t of a group, along an axis.
inline uint place(const MPSREF_UNTOLD mpsref_group *g, uint t, int axis) {
    return axis == 0 ? t % g->extent[0] : axis == 1 ? t / g->extent[0] % g->extent[1] : t / g->extent[0] / g->extent[1];
}

// An index or a size, as any of the types that MSL allows.
struct index {
    uint x, y, z;
    template <class T, class = if_integer<T>> operator T() const { return T(x); }
    template <class T> operator vector<T, 2>() const { return vector<T, 2>{T(x), T(y)}; }
    template <class T> operator vector<T, 3>() const { return vector<T, 3>{T(x), T(y), T(z)}; }
};

// The numbers that T consists of: 'b', 'i', 'u', 'f', or 'V' for bfloat, times 256, plus their bytes; 0 for a struct.
template <class T> struct numbers_of {
    typedef element<T> E;
    enum { kind = __is_same(E, bool) ? 'b' : is_narrow<E> && !__is_same(E, half) ? 'V' : is_floating<E> ? 'f' : 0 };
    enum { sign = metal::is_signed<E>::value ? 'i' : 'u' };
    enum { code = is_number<E> ? (kind ? int(kind) : int(sign)) * 256 + int(sizeof(E)) : 0 };
};
template <class T> struct numbers_of<metal::mpsref_atomic<T>> : numbers_of<T> {};
struct numbers_of_bool {
    enum { code = 'b' * 256 + 1 };
};
template <> struct numbers_of<bool2_in_buffer> : numbers_of_bool {};
template <> struct numbers_of<bool3_in_buffer> : numbers_of_bool {};
template <> struct numbers_of<bool4_in_buffer> : numbers_of_bool {};

// For each parameter that is memory: bytes of what it points or refers to, alignment, whether it is written, whether it
// is a reference, the numbers in it, and how many buffers it is.
template <class T, class = void> struct target {
    typedef void to;
    enum { count = 0, bytes = 0, alignment = 0, is_writable = 0, is_reference = 0, numbers = 0, buffers = 0 };
};
template <class T> struct target<T *> {
    typedef typename metal::conditional<__is_void(T), char, T>::type to;
    enum { count = 6, bytes = sizeof(to), alignment = alignof(to), is_writable = !__is_const(T), is_reference = 0 };
    enum { numbers = __is_void(T) ? 0 : int(numbers_of<metal::remove_cvref_t<to>>::code), buffers = 1 };
};
template <class T> struct target<T &> : target<T *> {
    enum { is_reference = 1 };
};
template <class T, size_t N> struct target<metal::array<T *, N>> : target<T *> {
    enum { buffers = N };
};
template <class T> struct target<const T> : target<T> {};
template <class T> struct target<T, typename T::mpsref_is_tensor> {
    static_assert(T::mpsref_is_dynamic(), "the extents of a tensor that is a parameter are dynamic, as in dextents<int, 2>");
    typedef T to;
    enum { count = 6, bytes = sizeof(to), alignment = alignof(to), is_writable = 0, is_reference = 1, numbers = 0, buffers = 1 };
};

// The type that parameter I of a function points or refers to, and what a member of it is.
template <class F, int I> struct parameter;
template <class R, class P, class... Rest, int I>
struct parameter<R (*)(P, Rest...), I> : parameter<R (*)(Rest...), I - 1> {};
template <class R, class P, class... Rest> struct parameter<R (*)(P, Rest...), 0> {
    typedef metal::remove_cvref_t<typename target<P>::to> type;
};
template <class M> struct member : target<M *> {
    enum { length = 1, is_pointer = 0 };
};
template <class M> struct member<M *> : target<M *> {
    enum { length = 1, is_pointer = 1 };
};
template <class M> struct member<M *const> : member<M *> {};
template <class M, size_t N> struct member<M[N]> : member<M> {
    enum { length = N };
};
template <class M, size_t N> struct member<metal::array<M, N>> : member<M[N]> {};
struct about_member {
    uint offset, length, is_pointer, bytes, alignment, is_writable, numbers;
    template <class M>
    constexpr about_member(size_t at, M)
        : offset(at), length(M::length), is_pointer(M::is_pointer), bytes(M::bytes), alignment(M::alignment),
          is_writable(M::is_writable), numbers(M::numbers) {}
};
template <int N> struct members {
    about_member all[N];
};
template <class F> struct about;
template <class R, class... P> struct about<R (*)(P...)> {
    enum { count = (1 + ... + target<P>::count) };
    uint numbers[count];
    constexpr about() : numbers{count} {
        uint at = 1;
        (add<target<P>>(at), ...);
    }
    template <class T> constexpr void add(uint &at) {
        const uint found[] = {T::bytes, T::alignment, T::is_writable, T::is_reference, T::numbers, T::buffers};
        for (int i = 0; i < T::count; i++) numbers[at++] = found[i];
    }
};

template <int N> struct bindings {
    uint numbers[N];
};

#ifdef MPSREF_CHECKED
// A variable of a thread, in the scope that declares it without an initializer. Of a class some bytes are padding.
template <class T> constexpr constant bool has_class = __is_class(__remove_all_extents(T)) || __is_union(__remove_all_extents(T));
template <class T> constexpr constant uint what_is = has_class<T> ? uint(MPSREF_OF_CLASS) : uint(MPSREF_OF_NUMBERS);
template <class T, int C, int R>
constexpr constant uint what_is<metal::matrix<T, C, R>> = R == 3 ? uint(MPSREF_OF_CLASS) : MPSREF_OF_VECTORS + sizeof(T);
template <class T, int N>
constexpr constant uint what_is<T __attribute__((ext_vector_type(N)))> = MPSREF_OF_VECTORS + sizeof(T);
struct unset {
    volatile void *variable;
    ulong bytes;
    template <class T> unset(T &x, bool is_returned) : unset(shape<T>(), shape<T>::is_vector ? nullptr : &x, is_returned) {}
    // What a function returns may lie where its caller reads it.
    template <class T> unset(shape<T>, volatile void *at, bool is_returned)
        : variable(is_returned ? nullptr : at), bytes(__is_trivially_constructible(T) ? sizeof(T) : 0) {
        if (at) mpsref_unset(at, bytes, what_is<__remove_all_extents(T)>);
    }
    ~unset() {
        if (variable) mpsref_unset(variable, bytes, 0);
    }
};
// Which components of a vector of a thread are set: a bit for each.
struct components {
    mutable uint are_set = 0;
    template <class V> MPSREF_TOUCHES V &set(V &v, uint bits) const {
        are_set |= bits;
        return v;
    }
    template <class V> MPSREF_TOUCHES V &used(V &v, uint bits) const {
        if (~are_set & bits & ((1 << shape<V>::size) - 1)) mpsref_unset_component();
        return v;
    }
    template <class I> MPSREF_TOUCHES I set_at(I i) const {
        are_set |= 1u << (uint(i) & 31);
        return i;
    }
    template <class I> MPSREF_TOUCHES I used_at(I i) const {
        if (!(are_set >> (uint(i) & 31) & 1)) mpsref_unset_component();
        return i;
    }
};
#define MPSREF_UNSET(NAME, IS_RETURNED) const mpsref::unset mpsref_unset_##NAME(NAME, IS_RETURNED);
// The compiler finds most numbers that are used before they are set, if nothing else refers to them.
#define MPSREF_UNSET_ONE(NAME, IS_RETURNED) \
    const mpsref::unset mpsref_unset_##NAME(mpsref::shape<decltype(NAME)>(), [&]() -> volatile void * { \
        if constexpr (mpsref::has_class<decltype(NAME)>) return &NAME; \
        return nullptr; \
    }(), IS_RETURNED);
// The bounds of a private array are those of its elements, without the alignment of large ones on x86-64.
#define MPSREF_ALIGNED(...) __attribute__((aligned(alignof(__VA_ARGS__))))
#define MPSREF_COMPONENTS(NAME) const mpsref::components mpsref_set_##NAME;
#define MPSREF_SET(NAME, BITS) mpsref_set_##NAME.set(NAME, BITS)
#define MPSREF_USED(NAME, BITS) mpsref_set_##NAME.used(NAME, BITS)
#define MPSREF_SET_AT(NAME, ...) mpsref_set_##NAME.set_at(__VA_ARGS__)
#define MPSREF_USED_AT(NAME, ...) mpsref_set_##NAME.used_at(__VA_ARGS__)
#else
#define MPSREF_UNSET(NAME, IS_RETURNED)
#define MPSREF_UNSET_ONE(NAME, IS_RETURNED)
#define MPSREF_ALIGNED(...)
#define MPSREF_COMPONENTS(NAME)
#define MPSREF_SET(NAME, BITS) NAME
#define MPSREF_USED(NAME, BITS) NAME
#define MPSREF_SET_AT(NAME, ...) __VA_ARGS__
#define MPSREF_USED_AT(NAME, ...) __VA_ARGS__
#endif

#ifndef MPSREF_CUDA
// The compiler's own check of arrays of known size (-fsanitize=array-bounds) calls this instead of going on.
struct check_type {
    uint16_t kind, info;
    char name[1];
};
struct out_of_bounds {
    mpsref_site place;
    const check_type *array, *index;
};
#endif

} // namespace mpsref

#if !__has_cpp_attribute(clang::sycl_external)
#error "clang is older than 22: pip install ziglang>=0.17, or name a newer one in MPSREF_CLANG"
#endif
#define MPSREF_CODE extern "C" [[clang::sycl_external]]
#define MPSREF_OWN_CODE MPSREF_CODE __attribute__((no_sanitize("all", "coverage"))) // not of the kernel: compiled without checks
#define MPSREF_LIST(...) {__VA_ARGS__}
// Only functions are emitted on their own: this one takes data along.
#define MPSREF_DATA(TYPE, NAME, ...) \
    extern "C" const TYPE NAME; \
    const TYPE NAME = __VA_ARGS__; \
    MPSREF_OWN_CODE const void *NAME##_address() { return &NAME; }

// The types of the parameters, and for those that are memory the index and whether the parameter exists.
#define MPSREF_ABOUT(KERNEL, ...) \
    MPSREF_DATA(mpsref::about<decltype(+KERNEL)>, mpsref_about, {}) \
    MPSREF_DATA(mpsref::bindings<mpsref::about<decltype(+KERNEL)>::count>, mpsref_bindings, {{__VA_ARGS__}})

// The members of structs with pointers. MPSREF_MEMBER is one, of what a parameter points or refers to.
#define MPSREF_MEMBERS(COUNT, ...) MPSREF_DATA(mpsref::members<COUNT>, mpsref_members, {{__VA_ARGS__}})
#define MPSREF_MEMBER(KERNEL, PARAMETER, NAME) \
    [] { \
        typedef mpsref::parameter<decltype(+KERNEL), PARAMETER>::type type; \
        return mpsref::about_member(__builtin_offsetof(type, NAME), mpsref::member<__typeof__(((type *)nullptr)->NAME)>()); \
    }()
#ifdef MPSREF_CUDA
// A kernel of one thread a call, with PARAMETERS and their names, one pointer for each buffer.
#define MPSREF_LOCAL
#define MPSREF_ZONE
#define MPSREF_THREADS(...) static const uint mpsref_threads __attribute__((used)) = __VA_ARGS__;
#ifdef MPSREF_EXACT
// A part of a grid, all of whose threadgroups have the same size. `part` has threads of the grid, threads of a full
// group, groups of the grid, the first group of the part, and where threadgroup memory of parameters lies.
extern "C" threadgroup char mpsref_shared[] __attribute__((aligned(16)));
#define MPSREF_AND_PART(...) (__VA_ARGS__, const uint *part)
#define MPSREF_SREG(NAME) {__nvvm_read_ptx_sreg_##NAME##_x(), __nvvm_read_ptx_sreg_##NAME##_y(), __nvvm_read_ptx_sreg_##NAME##_z()}
#define MPSREF_ENTRY(PARAMETERS, BUFFERS, LOCALS, ...) \
    MPSREF_CODE __attribute__((nvptx_kernel)) void mpsref_thread MPSREF_AND_PART PARAMETERS { \
        void *const buffers[] = BUFFERS; \
        void *locals[LOCALS + 1]; \
        for (int i = 0; i < LOCALS; i++) locals[i] = (void *)(mpsref_shared + part[12 + i]); \
        const uint extent[] = MPSREF_SREG(ntid), at[] = MPSREF_SREG(ctaid); \
        mpsref_group group = {buffers, locals, extent[0] * extent[1] * extent[2]}; \
        for (int i = 2; i >= 0; i--) { \
            group.grid[i] = part[i], group.width[i] = part[3 + i], group.groups[i] = part[6 + i]; \
            group.position[i] = at[i] + part[9 + i], group.extent[i] = extent[i]; \
            group.origin[i] = group.position[i] * group.width[i]; \
            group.index = group.index * group.groups[i] + group.position[i]; \
        } \
        const mpsref_group *const g = &group; \
        const uint t = mpsref::thread_index(); \
        __VA_ARGS__; \
    }
#else
#define MPSREF_ENTRY(PARAMETERS, BUFFERS, LOCALS, ...) \
    MPSREF_CODE __attribute__((nvptx_kernel)) void mpsref_thread PARAMETERS { \
        void *const buffers[] = BUFFERS; \
        const uint size = __nvvm_read_ptx_sreg_ntid_x(), index = __nvvm_read_ptx_sreg_ctaid_x(); \
        const uint groups = __nvvm_read_ptx_sreg_nctaid_x(); \
        const mpsref_group group = {buffers, nullptr, size, index, {index * size, 0, 0}, {index, 0, 0}, \
                                    {size, 1, 1}, {size, 1, 1}, {groups * size, 1, 1}, {groups, 1, 1}}; \
        const mpsref_group *const g = &group; \
        const uint t = __nvvm_read_ptx_sreg_tid_x(); \
        __VA_ARGS__; \
    }
#endif
#else
// The threadgroup variables lie in a section of their own, and the threads that a kernel names in another. The linker
// marks their ends; of a section that does not exist both are null.
#ifdef MPSREF_APPLE
#define MPSREF_SECTION(NAME) __attribute__((used, section("__DATA," #NAME)))
#define MPSREF_BOUND(END, NAME) __asm("section$" #END "$__DATA$" #NAME)
#else
#define MPSREF_SECTION(NAME) __attribute__((used, retain, section(#NAME)))
#define MPSREF_BOUND(END, NAME) __asm("__" #END "_" #NAME)
#endif
#define MPSREF_LOCAL MPSREF_SECTION(mpsref_locals)
#ifdef MPSREF_CHECKED
#define MPSREF_ZONE MPSREF_ZONE_OF(__COUNTER__)
#define MPSREF_ZONE_OF(NUMBER) MPSREF_ZONE_NAMED(NUMBER)
#define MPSREF_ZONE_NAMED(NUMBER) static MPSREF_LOCAL char mpsref_zone_##NUMBER[256];
#else
#define MPSREF_ZONE
#endif
#define MPSREF_THREADS(...) static const uint mpsref_threads MPSREF_SECTION(mpsref_counts) = __VA_ARGS__;
#define MPSREF_EXTENT(NAME) \
    extern "C" __attribute__((weak, visibility("hidden"))) uint8_t NAME##_first[] MPSREF_BOUND(start, NAME); \
    extern "C" __attribute__((weak, visibility("hidden"))) uint8_t NAME##_end[] MPSREF_BOUND(stop, NAME);
MPSREF_EXTENT(mpsref_locals)
MPSREF_EXTENT(mpsref_counts)
#undef MPSREF_EXTENT
struct mpsref_extent {
    uint8_t *first, *end;
};
#define MPSREF_ENTRY(PARAMETERS, BUFFERS, LOCALS, ...) \
    MPSREF_DATA(mpsref_extent, mpsref_local, {mpsref_locals_first, mpsref_locals_end}) \
    MPSREF_DATA(mpsref_extent, mpsref_named, {mpsref_counts_first, mpsref_counts_end}) \
    MPSREF_CODE void mpsref_thread(const MPSREF_UNTOLD mpsref_group *g, uint t) { __VA_ARGS__; }

MPSREF_OWN_CODE __attribute__((visibility("hidden"))) void __ubsan_handle_out_of_bounds_abort(
    const mpsref::out_of_bounds *found, uint64_t index
) {
    uint64_t length = 0;
    for (const char *c = found->array->name; *c; c++)
        if (*c == '[') {
            for (length = 0, c++; *c >= '0' && *c <= '9'; c++) length = length * 10 + uint64_t(*c - '0');
            break;
        }
    mpsref_out_of_bounds(int64_t(index), length, found->place);
}

#if __METAL_VERSION__ >= 310
// The compiler calls this on CPUs that have no instruction for it. Rounds to nearest, ties to even; a NaN stays one.
MPSREF_OWN_CODE __attribute__((weak, visibility("hidden"))) bfloat __truncsfbf2(float a) {
    const uint bits = __builtin_bit_cast(uint, a);
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    const uint rounded = is_nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
    return __builtin_bit_cast(bfloat, uint16_t(rounded >> 16));
}
#endif
#endif
