// <metal_types>, <metal_type_traits>, <metal_array> and other parts without arithmetic.
#pragma once

template <class To, class From> constexpr To as_type(From value) { return anymetal::bits<To>(value); }

namespace metal {

using ::as_type;
template <class T, int N> using vec = T __attribute__((ext_vector_type(N)));
#define ANYMETAL_USING(T) \
    using ::T##2; using ::T##3; using ::T##4; \
    using ::packed_##T##2; using ::packed_##T##3; using ::packed_##T##4;
ANYMETAL_NUMBERS(ANYMETAL_USING)
#undef ANYMETAL_USING
using ::bool2; using ::bool3; using ::bool4;
using ::uchar; using ::ushort; using ::uint; using ::ulong; using ::size_t; using ::ptrdiff_t; using ::uintptr_t;
using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t; using ::int32_t; using ::uint32_t;
using ::int64_t; using ::uint64_t; using ::intptr_t;
#ifndef ANYMETAL_STRICT
using ::anymetal_bools;
using ::half;
#endif
#if __METAL_VERSION__ >= 310
using ::bfloat;
#endif

template <class T, T V> struct integral_constant {
    static constexpr constant T value = V;
    typedef T value_type;
    typedef integral_constant type;
    constexpr operator T() const { return V; }
};
template <bool B> using bool_constant = integral_constant<bool, B>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;

template <bool C, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool C, class A, class B> struct conditional { typedef A type; };
template <class A, class B> struct conditional<false, A, B> { typedef B type; };
template <bool C, class T = void> using enable_if_t = typename enable_if<C, T>::type;
template <bool C, class A, class B> using conditional_t = typename conditional<C, A, B>::type;

// ANYMETAL_TRAIT(name, of): name<T>::type is `of`, which is of T. The ANYMETAL_PART after it covers the types that match.
#define ANYMETAL_TRAIT(NAME, ...) \
    template <class T> struct NAME { typedef __VA_ARGS__ type; }; \
    template <class T> using NAME##_t = typename NAME<T>::type;
#define ANYMETAL_PART(NAME, ...) template <class T> struct NAME<__VA_ARGS__> { typedef T type; };
ANYMETAL_TRAIT(type_identity, T)
ANYMETAL_TRAIT(remove_const, T) ANYMETAL_PART(remove_const, const T)
ANYMETAL_TRAIT(remove_volatile, T) ANYMETAL_PART(remove_volatile, volatile T)
ANYMETAL_TRAIT(remove_cv, remove_const_t<remove_volatile_t<T>>)
ANYMETAL_TRAIT(remove_reference, T) ANYMETAL_PART(remove_reference, T &) ANYMETAL_PART(remove_reference, T &&)
ANYMETAL_TRAIT(remove_pointer, T) ANYMETAL_PART(remove_pointer, T *) ANYMETAL_PART(remove_pointer, T *const)
ANYMETAL_TRAIT(remove_extent, T) ANYMETAL_PART(remove_extent, T[])
template <class T, size_t N> struct remove_extent<T[N]> { typedef T type; };
ANYMETAL_TRAIT(remove_addrspace, T) ANYMETAL_PART(remove_addrspace, device T) ANYMETAL_PART(remove_addrspace, threadgroup T)
#ifdef ANYMETAL_STRICT
ANYMETAL_PART(remove_addrspace, constant T) ANYMETAL_PART(remove_addrspace, thread T)
#else
ANYMETAL_PART(remove_addrspace, __attribute__((opencl_global_host)) T)
#endif
ANYMETAL_TRAIT(remove_cvref, remove_cv_t<remove_addrspace_t<remove_reference_t<T>>>)
ANYMETAL_TRAIT(decay, remove_cvref_t<T>)
template <class T, size_t N> struct decay<T[N]> { typedef T *type; };
ANYMETAL_TRAIT(add_const, const T) ANYMETAL_TRAIT(add_volatile, volatile T)
ANYMETAL_TRAIT(add_pointer, remove_reference_t<T> *)
ANYMETAL_TRAIT(add_lvalue_reference, T &) ANYMETAL_TRAIT(add_rvalue_reference, T &&)
ANYMETAL_TRAIT(make_signed, __make_signed(T)) ANYMETAL_TRAIT(make_unsigned, __make_unsigned(T))
ANYMETAL_TRAIT(underlying_type, __underlying_type(T))
ANYMETAL_TRAIT(make_scalar, anymetal::element<T>)

#define ANYMETAL_TEST(NAME, ...) \
    template <class T> struct NAME : bool_constant<__VA_ARGS__> {}; \
    template <class T> constexpr constant bool NAME##_v = NAME<T>::value;
#define ANYMETAL_TEST_OF_TWO(NAME) \
    template <class T, class U> struct NAME : bool_constant<__##NAME(T, U)> {}; \
    template <class T, class U> constexpr constant bool NAME##_v = __##NAME(T, U);
ANYMETAL_TEST_OF_TWO(is_same) ANYMETAL_TEST_OF_TWO(is_convertible) ANYMETAL_TEST_OF_TWO(is_base_of)
template <class T, class... A> struct is_constructible : bool_constant<__is_constructible(T, A...)> {};
template <class T, class... A> constexpr constant bool is_constructible_v = __is_constructible(T, A...);
ANYMETAL_TEST(is_floating_point, __is_same(remove_cv_t<T>, float) || anymetal::is_narrow<remove_cv_t<T>>)
ANYMETAL_TEST(is_integral, __is_integral(anymetal::element<T>)) // also of vectors, as in Apple's headers
ANYMETAL_TEST(is_arithmetic, __is_integral(T) || is_floating_point<T>::value)
ANYMETAL_TEST(is_scalar, is_arithmetic<T>::value)
ANYMETAL_TEST(is_signed, is_floating_point<T>::value || __is_signed(T))
ANYMETAL_TEST(is_unsigned, __is_unsigned(T))
ANYMETAL_TEST(is_vector, anymetal::shape<T>::is_vector)
#define ANYMETAL_BUILTIN(NAME) ANYMETAL_TEST(NAME, __##NAME(T))
ANYMETAL_BUILTIN(is_void) ANYMETAL_BUILTIN(is_enum) ANYMETAL_BUILTIN(is_union) ANYMETAL_BUILTIN(is_class)
ANYMETAL_BUILTIN(is_array) ANYMETAL_BUILTIN(is_function) ANYMETAL_BUILTIN(is_pointer) ANYMETAL_BUILTIN(is_reference)
ANYMETAL_BUILTIN(is_lvalue_reference) ANYMETAL_BUILTIN(is_rvalue_reference) ANYMETAL_BUILTIN(is_const)
ANYMETAL_BUILTIN(is_volatile) ANYMETAL_BUILTIN(is_trivially_copyable)
#undef ANYMETAL_TEST

template <class... B> struct conjunction : bool_constant<(B::value && ...)> {};
template <class... B> struct disjunction : bool_constant<(B::value || ...)> {};
template <class B> struct negation : bool_constant<!B::value> {};
template <class... B> constexpr constant bool conjunction_v = (B::value && ...);
template <class... B> constexpr constant bool disjunction_v = (B::value || ...);
template <class B> constexpr constant bool negation_v = !B::value;
// Names of Apple's headers that sources use.
template <class... B> using _conjunction = conjunction<B...>;
template <class... B> using _disjunction = disjunction<B...>;
template <class T> struct __is_valid_simdgroup_type : bool_constant<anymetal::is_number<anymetal::element<T>>> {};
template <class T>
struct vec_elements : integral_constant<uint, anymetal::shape<T>::is_vector ? uint(anymetal::shape<T>::size) : 0u> {};

// A class, as in Apple's headers: && and || with one of these are functions, which evaluate both operands.
template <class T> struct uniform {
    T anymetal_value;
    constexpr uniform(T value = T()) : anymetal_value(value) {}
    constexpr operator T() const { return anymetal_value; }
};
template <class T> constexpr uniform<T> make_uniform(T value) { return value; }
#define ANYMETAL_UNIFORM(OP) \
    template <class T, class U> constexpr auto operator OP(uniform<T> a, uniform<U> b) { \
        return make_uniform(a.anymetal_value OP b.anymetal_value); \
    } \
    template <class T, class U, anymetal::enable<anymetal::is_number<U>> = 0> \
    constexpr auto operator OP(uniform<T> a, U b) { return make_uniform(a.anymetal_value OP b); } \
    template <class T, class U, anymetal::enable<anymetal::is_number<U>> = 0> \
    constexpr auto operator OP(U a, uniform<T> b) { return make_uniform(a OP b.anymetal_value); }
ANYMETAL_UNIFORM(<) ANYMETAL_UNIFORM(>) ANYMETAL_UNIFORM(<=) ANYMETAL_UNIFORM(>=) ANYMETAL_UNIFORM(==) ANYMETAL_UNIFORM(!=)
ANYMETAL_UNIFORM(+) ANYMETAL_UNIFORM(-) ANYMETAL_UNIFORM(*) ANYMETAL_UNIFORM(/) ANYMETAL_UNIFORM(%) ANYMETAL_UNIFORM(&)
ANYMETAL_UNIFORM(|) ANYMETAL_UNIFORM(^) ANYMETAL_UNIFORM(<<) ANYMETAL_UNIFORM(>>) ANYMETAL_UNIFORM(&&) ANYMETAL_UNIFORM(||)
#undef ANYMETAL_UNIFORM

template <class T> T &&declval();
} // namespace metal
namespace std { // which the compiler makes of `{a, b}`, by this name
template <class T> class initializer_list {
    const ANYMETAL_OF_THREAD T *first;
    size_t count;

  public:
    constexpr initializer_list() : first(nullptr), count(0) {}
    constexpr size_t size() const { return count; }
    constexpr const ANYMETAL_OF_THREAD T *begin() const { return first; }
    constexpr const ANYMETAL_OF_THREAD T *end() const { return first + count; }
};
} // namespace std
namespace metal {
using std::initializer_list;
template <class T, T... I> struct integer_sequence {
    static constexpr size_t size() { return sizeof...(I); }
};
template <size_t... I> using index_sequence = integer_sequence<size_t, I...>;
template <class T, T N> using make_integer_sequence = __make_integer_seq<integer_sequence, T, N>;
template <size_t N> using make_index_sequence = make_integer_sequence<size_t, N>;

template <class T, size_t N> struct array {
    T anymetal_elements[N];
    ANYMETAL_CONST(constexpr size_t size(), { return N; })
    ANYMETAL_CONST(constexpr size_t max_size(), { return N; })
    ANYMETAL_CONST(constexpr bool empty(), { return N == 0; })
    ANYMETAL_SUBSCRIPT(T, size_t, ANYMETAL_SELF.anymetal_elements[i])
    ANYMETAL_ACCESS(T *, data, ANYMETAL_SELF.anymetal_elements + 0)
    ANYMETAL_ACCESS(T *, begin, ANYMETAL_SELF.anymetal_elements + 0)
    ANYMETAL_ACCESS(T *, end, ANYMETAL_SELF.anymetal_elements + N)
    ANYMETAL_ACCESS(T &, front, ANYMETAL_SELF.anymetal_elements[0])
    ANYMETAL_ACCESS(T &, back, ANYMETAL_SELF.anymetal_elements[N - 1])
};

} // namespace metal

#ifndef ANYMETAL_STRICT
namespace anymetal {

// An operand of `?:`. An object in an address space and one without have no common type: they are copied.
template <class T> constexpr T loaded(T x) { return x; }
template <class T> constexpr vector<T, 3> loaded(packed3<T> x) { return x; }
// The same if members differ by address space: an object stays in its own.
template <class T, enable<!is_object<T>> = 0> constexpr T kept(T x) { return x; }
template <class T> constexpr vector<T, 3> kept(packed3<T> x) { return x; }
template <class T, enable<is_object_in_memory<T>> = 0> constexpr T &&kept(T &&x) { return (T &&)x; }

} // namespace anymetal
#endif

// What the arguments of an indirect dispatch or draw, and the factors of a tessellation, are in a buffer.
struct MTLQuadTessellationFactorsHalf {
    half edgeTessellationFactor[4], insideTessellationFactor[2];
};
struct MTLTriangleTessellationFactorsHalf {
    half edgeTessellationFactor[3], insideTessellationFactor;
};
struct MTLDispatchThreadgroupsIndirectArguments {
    uint threadgroupsPerGrid[3];
};
struct MTLStageInRegionIndirectArguments {
    uint stageInOrigin[3], stageInSize[3];
};
struct MTLDrawPrimitivesIndirectArguments {
    uint vertexCount, instanceCount, vertexStart, baseInstance;
};
struct MTLDrawIndexedPrimitivesIndirectArguments {
    uint indexCount, instanceCount, indexStart;
    int baseVertex;
    uint baseInstance;
};
