// How a kernel is called: what the line that the front end writes behind a source expands to. A library has one kernel.
#pragma once
#include "abi.h"

namespace anymetal {

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
    void *const ANYMETAL_UNTOLD *first;
    template <class T, size_t N> operator metal::array<T *, N>() const {
        metal::array<T *, N> all;
        for (size_t i = 0; i < N; i++) all[i] = (T *)first[i];
        return all;
    }
};

#ifdef ANYMETAL_IMAGES
// Textures and samplers: what the table of a launch has at an index, and for an array from there on.
template <class T, size_t N, class F> metal::array<T, N> all_of(F one) {
    metal::array<T, N> all;
    for (size_t i = 0; i < N; i++) all.anymetal_elements[i] = one(i);
    return all;
}
struct texture_argument {
    const void *table;
    uint index;
    template <class T> T at(size_t i) const {
        T one;
        one.anymetal_entry = (texels)(ulong)table + index + i;
        return one;
    }
    template <class T, class = typename T::anymetal_is_texture> operator T() const { return at<T>(0); }
    template <class T, size_t N> operator metal::array<T, N>() const {
        return all_of<T, N>([=](size_t i) { return at<T>(i); });
    }
};
struct sampler_argument {
    const void *table;
    uint index;
    metal::sampler at(size_t i) const {
        metal::sampler one;
        one.anymetal_state = ((texels)(ulong)table + index + i)->sampler;
        return one;
    }
    operator metal::sampler() const { return at(0); }
    template <size_t N> operator metal::array<metal::sampler, N>() const {
        return all_of<metal::sampler, N>([=](size_t i) { return at(i); });
    }
};

// Of each texture its kind, access, component and number; the kind of a sampler is 255.
template <class T, class = void> struct image { enum { is = 0, kind = 0, access = 0, code = 0, count = 1 }; };
template <class T> struct image<T, typename T::anymetal_is_texture> {
    enum { is = 1, kind = T::anymetal_kind, access = T::anymetal_access, code = T::anymetal_code, count = 1 };
};
template <> struct image<metal::sampler, void> { enum { is = 1, kind = 255, access = 0, code = 0, count = 1 }; };
template <class T, size_t N> struct image<metal::array<T, N>, void> : image<T> { enum { count = N }; };
template <class T> struct image<const T, void> : image<T> {};
template <class F, int N> struct images;
template <class R, class... P, int N> struct images<R (*)(P...), N> {
    uint numbers[4 * N];
    constexpr images() : numbers{} {
        uint at = 0;
        (add<image<P>>(at), ...);
    }
    template <class T> constexpr void add(uint &at) {
        const uint found[] = {uint(T::kind), uint(T::access), uint(T::code), uint(T::count)};
        for (int i = 0; T::is && i < 4; i++) numbers[at++] = found[i];
    }
};
#endif

// The position of thread t of a group, along an axis.
inline uint place(const ANYMETAL_UNTOLD anymetal_group *g, uint t, int axis) {
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
template <class T> struct numbers_of<metal::anymetal_atomic<T>> : numbers_of<T> {};

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
template <class T> struct target<T, typename T::anymetal_is_tensor> {
    static_assert(T::anymetal_is_dynamic(), "the extents of a tensor that is a parameter are dynamic, as in dextents<int, 2>");
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
#ifdef ANYMETAL_IMAGES
// Of a texture the numbers of `image` take the places of what a pointer points to.
template <class M> struct member_image : target<M *> {
    enum { length = 1, is_pointer = 2, is_writable = image<M>::access, numbers = image<M>::kind | image<M>::code << 8 };
};
template <class T, metal::access A, metal::memory_coherence C, template <class, metal::access, metal::memory_coherence> class M>
struct member<M<T, A, C>> : member_image<M<T, A, C>> {};
template <> struct member<metal::sampler> : member_image<metal::sampler> {};
#endif
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

#ifdef ANYMETAL_CHECKED
// A variable of a thread, in the scope that declares it without an initializer. Of a class some bytes are padding.
template <class T> constexpr constant bool has_class = __is_class(__remove_all_extents(T)) || __is_union(__remove_all_extents(T));
template <class T> constexpr constant uint what_is = has_class<T> ? uint(ANYMETAL_OF_CLASS) : uint(ANYMETAL_OF_NUMBERS);
template <class T, int C, int R>
constexpr constant uint what_is<metal::matrix<T, C, R>> = R == 3 ? uint(ANYMETAL_OF_CLASS) : ANYMETAL_OF_VECTORS + sizeof(T);
template <class T, int N>
constexpr constant uint what_is<T __attribute__((ext_vector_type(N)))> = ANYMETAL_OF_VECTORS + sizeof(T);
struct unset {
    volatile void *variable;
    ulong bytes;
    template <class T> unset(T &x, bool is_returned) : unset(shape<T>(), shape<T>::is_vector ? nullptr : &x, is_returned) {}
    // What a function returns may lie where its caller reads it.
    template <class T> unset(shape<T>, volatile void *at, bool is_returned)
        : variable(is_returned ? nullptr : at), bytes(__is_trivially_constructible(T) ? sizeof(T) : 0) {
        if (at) anymetal_unset(at, bytes, what_is<__remove_all_extents(T)>);
    }
    ~unset() {
        if (variable) anymetal_unset(variable, bytes, 0);
    }
};
// Which components of a vector of a thread are set: a bit for each.
struct components {
    mutable uint are_set = 0;
    template <class V> ANYMETAL_TOUCHES V &set(V &v, uint bits) const {
        are_set |= bits;
        return v;
    }
    template <class V> ANYMETAL_TOUCHES V &used(V &v, uint bits) const {
        if (~are_set & bits & ((1 << shape<V>::size) - 1)) anymetal_unset_component();
        return v;
    }
    template <class I> ANYMETAL_TOUCHES I set_at(I i) const {
        are_set |= 1u << (uint(i) & 31);
        return i;
    }
    template <class I> ANYMETAL_TOUCHES I used_at(I i) const {
        if (!(are_set >> (uint(i) & 31) & 1)) anymetal_unset_component();
        return i;
    }
};
#define ANYMETAL_UNSET(NAME, IS_RETURNED) const anymetal::unset anymetal_unset_##NAME(NAME, IS_RETURNED);
// The compiler finds most numbers that are used before they are set, if nothing else refers to them.
#define ANYMETAL_UNSET_ONE(NAME, IS_RETURNED) \
    const anymetal::unset anymetal_unset_##NAME(anymetal::shape<decltype(NAME)>(), [&]() -> volatile void * { \
        if constexpr (anymetal::has_class<decltype(NAME)>) return &NAME; \
        return nullptr; \
    }(), IS_RETURNED);
#define ANYMETAL_LIFE(NAME, TEXT) anymetal_life((volatile void *)&NAME, sizeof(NAME), TEXT, {__builtin_FILE(), __builtin_LINE(), 0});
// The bounds of a private array are those of its elements, without the alignment of large ones on x86-64.
#define ANYMETAL_ALIGNED(...) __attribute__((aligned(alignof(__VA_ARGS__))))
#define ANYMETAL_COMPONENTS(NAME) const anymetal::components anymetal_set_##NAME;
#define ANYMETAL_SET(NAME, BITS) anymetal_set_##NAME.set(NAME, BITS)
#define ANYMETAL_USED(NAME, BITS) anymetal_set_##NAME.used(NAME, BITS)
#define ANYMETAL_SET_AT(NAME, ...) anymetal_set_##NAME.set_at(__VA_ARGS__)
#define ANYMETAL_USED_AT(NAME, ...) anymetal_set_##NAME.used_at(__VA_ARGS__)
#else
#define ANYMETAL_UNSET(NAME, IS_RETURNED)
#define ANYMETAL_UNSET_ONE(NAME, IS_RETURNED)
#define ANYMETAL_LIFE(NAME, TEXT)
#define ANYMETAL_ALIGNED(...)
#define ANYMETAL_COMPONENTS(NAME)
#define ANYMETAL_SET(NAME, BITS) NAME
#define ANYMETAL_USED(NAME, BITS) NAME
#define ANYMETAL_SET_AT(NAME, ...) __VA_ARGS__
#define ANYMETAL_USED_AT(NAME, ...) __VA_ARGS__
#endif

#ifndef ANYMETAL_CUDA
// The compiler's own check of arrays of known size (-fsanitize=array-bounds) calls this instead of going on.
struct check_type {
    uint16_t kind, info;
    char name[1];
};
struct out_of_bounds {
    anymetal_site place;
    const check_type *array, *index;
};
#endif

} // namespace anymetal

#if !__has_cpp_attribute(clang::sycl_external)
#error "clang is older than 22: pip install ziglang>=0.17, or name a newer one in ANYMETAL_CLANG"
#endif
#define ANYMETAL_CODE extern "C" [[clang::sycl_external]]
#define ANYMETAL_OWN_CODE ANYMETAL_CODE __attribute__((no_sanitize("all", "coverage"))) // not of the kernel: compiled without checks
#define ANYMETAL_EXPORTED __attribute__((visibility("default"))) // names of a source are hidden
#define ANYMETAL_LIST(...) {__VA_ARGS__}
// Only functions are emitted on their own: this one takes data along.
#define ANYMETAL_DATA(TYPE, NAME, ...) \
    extern "C" ANYMETAL_EXPORTED const TYPE NAME; \
    const TYPE NAME = __VA_ARGS__; \
    ANYMETAL_OWN_CODE const void *NAME##_address() { return &NAME; }

// The types of the parameters, and for those that are memory the index and whether the parameter exists.
#define ANYMETAL_ABOUT(KERNEL, ...) \
    ANYMETAL_DATA(anymetal::about<decltype(+KERNEL)>, anymetal_about, {}) \
    ANYMETAL_DATA(anymetal::bindings<anymetal::about<decltype(+KERNEL)>::count>, anymetal_bindings, {{__VA_ARGS__}})

// The members of structs with pointers. ANYMETAL_MEMBER is one, of what a parameter points or refers to.
#define ANYMETAL_MEMBERS(COUNT, ...) ANYMETAL_DATA(anymetal::members<COUNT>, anymetal_members, {{__VA_ARGS__}})
#define ANYMETAL_MEMBER(KERNEL, PARAMETER, NAME) \
    [] { \
        typedef anymetal::parameter<decltype(+KERNEL), PARAMETER>::type type; \
        return anymetal::about_member(__builtin_offsetof(type, NAME), anymetal::member<__typeof__(((type *)nullptr)->NAME)>()); \
    }()
#ifdef ANYMETAL_IMAGES
#define ANYMETAL_IMAGES_OF(KERNEL, COUNT, ...) \
    typedef anymetal::images<decltype(+KERNEL), COUNT> anymetal_images_type; \
    ANYMETAL_DATA(anymetal_images_type, anymetal_images, {}) \
    ANYMETAL_DATA(anymetal::bindings<2 * COUNT>, anymetal_image_bindings, {{__VA_ARGS__}})
#endif
#ifdef ANYMETAL_CUDA
// A kernel of one thread a call, with PARAMETERS and their names, one pointer for each buffer.
#define ANYMETAL_LOCAL
#define ANYMETAL_ZONE
#define ANYMETAL_THREADS(...) static const uint anymetal_threads __attribute__((used)) = __VA_ARGS__;
#ifdef ANYMETAL_EXACT
// A part of a grid, all of whose threadgroups have the same size. `part` has threads of the grid, threads of a full
// group, groups of the grid, the first group of the part, and where threadgroup memory of parameters lies.
extern "C" threadgroup char anymetal_shared[] __attribute__((aligned(16)));
#define ANYMETAL_AND_PART(...) (__VA_ARGS__, const uint *part)
#define ANYMETAL_SREG(NAME) {__nvvm_read_ptx_sreg_##NAME##_x(), __nvvm_read_ptx_sreg_##NAME##_y(), __nvvm_read_ptx_sreg_##NAME##_z()}
#define ANYMETAL_ENTRY(PARAMETERS, BUFFERS, LOCALS, ...) \
    ANYMETAL_CODE __attribute__((nvptx_kernel)) void anymetal_thread ANYMETAL_AND_PART PARAMETERS { \
        void *const buffers[] = BUFFERS; \
        void *locals[LOCALS + 1]; \
        for (int i = 0; i < LOCALS; i++) locals[i] = (void *)(anymetal_shared + part[12 + i]); \
        const uint extent[] = ANYMETAL_SREG(ntid), at[] = ANYMETAL_SREG(ctaid); \
        anymetal_group group = {buffers, locals, extent[0] * extent[1] * extent[2]}; \
        for (int i = 2; i >= 0; i--) { \
            group.grid[i] = part[i], group.width[i] = part[3 + i], group.groups[i] = part[6 + i]; \
            group.position[i] = at[i] + part[9 + i], group.extent[i] = extent[i]; \
            group.origin[i] = group.position[i] * group.width[i]; \
            group.index = group.index * group.groups[i] + group.position[i]; \
        } \
        const anymetal_group *const g = &group; \
        const uint t = anymetal::thread_index(); \
        __VA_ARGS__; \
    }
#else
#define ANYMETAL_ENTRY(PARAMETERS, BUFFERS, LOCALS, ...) \
    ANYMETAL_CODE __attribute__((nvptx_kernel)) void anymetal_thread PARAMETERS { \
        void *const buffers[] = BUFFERS; \
        const uint size = __nvvm_read_ptx_sreg_ntid_x(), index = __nvvm_read_ptx_sreg_ctaid_x(); \
        const uint groups = __nvvm_read_ptx_sreg_nctaid_x(); \
        const anymetal_group group = {buffers, nullptr, size, index, {index * size, 0, 0}, {index, 0, 0}, \
                                    {size, 1, 1}, {size, 1, 1}, {groups * size, 1, 1}, {groups, 1, 1}}; \
        const anymetal_group *const g = &group; \
        const uint t = __nvvm_read_ptx_sreg_tid_x(); \
        __VA_ARGS__; \
    }
#endif
#else
// The threadgroup variables lie in a section of their own, and the threads that a kernel names in another. The linker
// marks their ends; of a section that does not exist both are null.
#ifdef ANYMETAL_APPLE
#define ANYMETAL_SECTION(NAME) __attribute__((used, section("__DATA," #NAME)))
#define ANYMETAL_BOUND(END, NAME) __asm("section$" #END "$__DATA$" #NAME)
#else
#define ANYMETAL_SECTION(NAME) __attribute__((used, retain, section(#NAME)))
#define ANYMETAL_BOUND(END, NAME) __asm("__" #END "_" #NAME)
#endif
#define ANYMETAL_LOCAL ANYMETAL_SECTION(anymetal_locals)
#ifdef ANYMETAL_CHECKED
#define ANYMETAL_ZONE ANYMETAL_ZONE_OF(__COUNTER__)
#define ANYMETAL_ZONE_OF(NUMBER) ANYMETAL_ZONE_NAMED(NUMBER)
#define ANYMETAL_ZONE_NAMED(NUMBER) static ANYMETAL_LOCAL char anymetal_zone_##NUMBER[256];
#else
#define ANYMETAL_ZONE
#endif
#define ANYMETAL_THREADS(...) static const uint anymetal_threads ANYMETAL_SECTION(anymetal_counts) = __VA_ARGS__;
#define ANYMETAL_EXTENT(NAME) \
    extern "C" __attribute__((weak, visibility("hidden"))) uint8_t NAME##_first[] ANYMETAL_BOUND(start, NAME); \
    extern "C" __attribute__((weak, visibility("hidden"))) uint8_t NAME##_end[] ANYMETAL_BOUND(stop, NAME);
ANYMETAL_EXTENT(anymetal_locals)
ANYMETAL_EXTENT(anymetal_counts)
#undef ANYMETAL_EXTENT
struct anymetal_extent {
    uint8_t *first, *end;
};
#define ANYMETAL_ENTRY(PARAMETERS, BUFFERS, LOCALS, ...) \
    ANYMETAL_DATA(anymetal_extent, anymetal_local, {anymetal_locals_first, anymetal_locals_end}) \
    ANYMETAL_DATA(anymetal_extent, anymetal_named, {anymetal_counts_first, anymetal_counts_end}) \
    ANYMETAL_CODE ANYMETAL_EXPORTED void anymetal_thread(const ANYMETAL_UNTOLD anymetal_group *g, uint t) { __VA_ARGS__; }

ANYMETAL_OWN_CODE __attribute__((visibility("hidden"))) void __ubsan_handle_out_of_bounds_abort(
    const anymetal::out_of_bounds *found, uint64_t index
) {
    uint64_t length = 0;
    for (const char *c = found->array->name; *c; c++)
        if (*c == '[') {
            for (length = 0, c++; *c >= '0' && *c <= '9'; c++) length = length * 10 + uint64_t(*c - '0');
            break;
        }
    anymetal_out_of_bounds(int64_t(index), length, found->place);
}

#if __METAL_VERSION__ >= 310
// The compiler calls this on CPUs that have no instruction for it. Rounds to nearest, ties to even; a NaN stays one.
ANYMETAL_OWN_CODE __attribute__((weak, visibility("hidden"))) bfloat __truncsfbf2(float a) {
    const uint bits = __builtin_bit_cast(uint, a);
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    const uint rounded = is_nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
    return __builtin_bit_cast(bfloat, uint16_t(rounded >> 16));
}
#endif
#endif
