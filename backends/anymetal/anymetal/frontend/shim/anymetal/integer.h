// Integer functions. Those whose names floating-point functions share are overloads for each type, so that a mixture of
// types is as ambiguous as it is to Apple's compiler.
#pragma once

namespace anymetal {

template <class T> using unsigned_of = __make_unsigned(T);
template <class T> using if_integer = typename only<__is_integral(T) && !__is_same(T, bool), T>::type;
template <class T> constexpr int width() { return 8 * int(sizeof(T)); }
template <class T> constexpr T highest() { return T(unsigned_of<T>(~0ul) >> (T(-1) < T(0))); }
template <class T> constexpr T saturated(bool is_low) { return is_low ? T(~highest<T>()) : highest<T>(); }

template <class T> constexpr bool has_24_bits(T a) { return T(-1) < T(0) ? long(a) >> 23 == 0 || long(a) >> 23 == -1 : ulong(a) >> 24 == 0; }
// Whether a range of bits lies in a number.
template <class T> constexpr bool has_bits(uint offset, uint count) { return ulong(offset) + count <= ulong(width<T>()); }

// The upper half of a product.
template <class T> constexpr T upper_product(T a, T b) {
    if constexpr (sizeof(T) < 8) {
        return T((long)a * (long)b >> width<T>());
    } else {
        const T a1 = a >> 32, b1 = b >> 32;
        const ulong a0 = uint(a), b0 = uint(b), low = a0 * b0 >> 32;
        const T middle = T(a1 * T(b0) + T(low)), other = T(T(a0) * b1 + T(uint(middle)));
        return T(a1 * b1 + (middle >> 32) + (other >> 32));
    }
}

} // namespace anymetal

namespace metal {

#ifdef ANYMETAL_CHECKED // the smallest number has no opposite
#define ANYMETAL_NEGATED(T, A) anymetal::negated(A)
#else
#define ANYMETAL_NEGATED(T, A) T(-anymetal::unsigned_of<T>(A))
#endif
#define ANYMETAL_INTEGER(T) \
    inline T abs(T a) { return a < 0 ? ANYMETAL_NEGATED(T, a) : a; } \
    inline T min(T a, T b) { return b < a ? b : a; } \
    inline T max(T a, T b) { return a < b ? b : a; } \
    inline T min3(T a, T b, T c) { return min(min(a, b), c); } \
    inline T max3(T a, T b, T c) { return max(max(a, b), c); } \
    inline T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); } \
    inline T clamp(T a, T b, T c) { return ANYMETAL_NEEDS(b <= c, "clamp() with a minimum above its maximum", min(max(a, b), c)); }
ANYMETAL_INTEGERS(ANYMETAL_INTEGER)
#undef ANYMETAL_INTEGER
ANYMETAL_TEMPLATE_1(abs, anymetal::integers<V>)

#define ANYMETAL_INTEGER(COUNT, NAME, PARAMETERS, ...) \
    template <class T, class = anymetal::if_integer<T>> inline T NAME PARAMETERS { \
        typedef anymetal::unsigned_of<T> U; \
        return T(__VA_ARGS__); \
    } \
    ANYMETAL_TEMPLATE_##COUNT(NAME, V)
ANYMETAL_INTEGER(1, popcount, (T a), __builtin_popcountl(U(a)))
ANYMETAL_INTEGER(1, ctz, (T a), a ? __builtin_ctzl(U(a)) : anymetal::width<T>())
ANYMETAL_INTEGER(1, clz, (T a), a ? __builtin_clzl(U(a)) - (64 - anymetal::width<T>()) : anymetal::width<T>())
ANYMETAL_INTEGER(1, reverse_bits, (T a), __builtin_bitreverse64(U(a)) >> (64 - anymetal::width<T>()))
ANYMETAL_INTEGER(2, hadd, (T a, T b), (a & b) + ((a ^ b) >> 1))
ANYMETAL_INTEGER(2, rhadd, (T a, T b), (a | b) - ((a ^ b) >> 1))
ANYMETAL_INTEGER(2, mulhi, (T a, T b), anymetal::upper_product(a, b))
ANYMETAL_INTEGER(2, addsat, (T a, T b), __builtin_add_overflow(a, b, &a) ? anymetal::saturated<T>(b < 0) : a)
ANYMETAL_INTEGER(2, subsat, (T a, T b), __builtin_sub_overflow(a, b, &a) ? anymetal::saturated<T>(b > 0) : a)
ANYMETAL_INTEGER(2, rotate, (T a, T b),
               ulong(U(a)) << (U(b) % anymetal::width<T>()) | ulong(U(a)) >> (U(-U(b)) % anymetal::width<T>()))
#define ANYMETAL_OF_24(NAME, ...) \
    ANYMETAL_NEEDS(anymetal::has_24_bits(a) && anymetal::has_24_bits(b), NAME "() of numbers with more than 24 bits", __VA_ARGS__)
ANYMETAL_INTEGER(2, mul24, (T a, T b), ANYMETAL_OF_24("mul24", U(a) * U(b)))
ANYMETAL_INTEGER(3, mad24, (T a, T b, T c), ANYMETAL_OF_24("mad24", U(a) * U(b) + U(c)))
#undef ANYMETAL_OF_24
ANYMETAL_INTEGER(3, madhi, (T a, T b, T c), U(anymetal::upper_product(a, b)) + U(c))

// The bits of a * b + c beyond T are all zeros, or with a sign all like its uppermost bit, if the sum is in range.
template <class T, class = anymetal::if_integer<T>> inline T madsat(T a, T b, T c) {
    typedef anymetal::unsigned_of<T> U;
    const U low = U(ulong(U(a)) * ulong(U(b))), sum = U(low + U(c));
    const T high = T(U(anymetal::upper_product(a, b)) + U(c < 0 ? -1 : 0) + U(sum < low));
    const T expected = T(-1) < T(0) ? T(T(sum) >> (anymetal::width<T>() - 1)) : T(0);
    return high == expected ? T(sum) : anymetal::saturated<T>(high < 0);
}
ANYMETAL_TEMPLATE_3(madsat, V)

template <class T, class = anymetal::if_integer<T>> inline anymetal::unsigned_of<T> absdiff(T a, T b) {
    typedef anymetal::unsigned_of<T> U;
    return a < b ? U(U(b) - U(a)) : U(U(a) - U(b));
}
template <class T, int N> inline vec<anymetal::unsigned_of<T>, N> absdiff(vec<T, N> a, vec<T, N> b) {
    vec<anymetal::unsigned_of<T>, N> r;
    ANYMETAL_UNROLLED for (int i = 0; i < N; i++) r[i] = absdiff(a[i], b[i]);
    return r;
}

template <class T, class = anymetal::if_integer<T>> inline T extract_bits(T a, uint offset, uint count) {
    const uint unused = anymetal::width<T>() - offset - count;
    return ANYMETAL_NEEDS(anymetal::has_bits<T>(offset, count), "extract_bits() beyond the bits of its number",
                          count == 0 ? T(0) : T(T(anymetal::unsigned_of<T>(a) << unused) >> (unused + offset)));
}
template <class T, class = anymetal::if_integer<T>> inline T insert_bits(T base, T inserted, uint offset, uint count) {
    const ulong mask = count == 0 ? 0 : ~0ul >> (64 - count) << offset;
    return ANYMETAL_NEEDS(anymetal::has_bits<T>(offset, count), "insert_bits() beyond the bits of its number",
                          T((ulong(base) & ~mask) | (ulong(inserted) << offset & mask)));
}
template <class T, int N> inline vec<T, N> extract_bits(vec<T, N> a, uint offset, uint count) {
    ANYMETAL_UNROLLED for (int i = 0; i < N; i++) a[i] = extract_bits(a[i], offset, count);
    return a;
}
template <class T, int N> inline vec<T, N> insert_bits(vec<T, N> base, vec<T, N> inserted, uint offset, uint count) {
    ANYMETAL_UNROLLED for (int i = 0; i < N; i++) base[i] = insert_bits(T(base[i]), T(inserted[i]), offset, count);
    return base;
}

#undef ANYMETAL_INTEGER

} // namespace metal
