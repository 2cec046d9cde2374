// Integer functions. Those whose names floating-point functions share are overloads for each type, so that a mixture of
// types is as ambiguous as it is to Apple's compiler.
#pragma once

namespace mpsref {

template <class T> using unsigned_of = __make_unsigned(T);
template <class T> using if_integer = typename only<__is_integral(T) && !__is_same(T, bool), T>::type;
template <class T> constexpr int width() { return 8 * int(sizeof(T)); }
template <class T> constexpr T highest() { return T(unsigned_of<T>(~0ul) >> (T(-1) < T(0))); }
template <class T> constexpr T saturated(bool is_low) { return is_low ? T(~highest<T>()) : highest<T>(); }

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

} // namespace mpsref

namespace metal {

#ifdef MPSREF_CHECKED // the smallest number has no opposite
#define MPSREF_NEGATED(T, A) mpsref::negated(A)
#else
#define MPSREF_NEGATED(T, A) T(-mpsref::unsigned_of<T>(A))
#endif
#define MPSREF_INTEGER(T) \
    inline T abs(T a) { return a < 0 ? MPSREF_NEGATED(T, a) : a; } \
    inline T min(T a, T b) { return b < a ? b : a; } \
    inline T max(T a, T b) { return a < b ? b : a; } \
    inline T min3(T a, T b, T c) { return min(min(a, b), c); } \
    inline T max3(T a, T b, T c) { return max(max(a, b), c); } \
    inline T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); } \
    inline T clamp(T a, T b, T c) { return min(max(a, b), c); }
MPSREF_INTEGERS(MPSREF_INTEGER)
#undef MPSREF_INTEGER

#define MPSREF_INTEGER(COUNT, NAME, PARAMETERS, ...) \
    template <class T, class = mpsref::if_integer<T>> inline T NAME PARAMETERS { \
        typedef mpsref::unsigned_of<T> U; \
        return T(__VA_ARGS__); \
    } \
    MPSREF_TEMPLATE_##COUNT(NAME, V)
MPSREF_INTEGER(1, popcount, (T a), __builtin_popcountl(U(a)))
MPSREF_INTEGER(1, ctz, (T a), a ? __builtin_ctzl(U(a)) : mpsref::width<T>())
MPSREF_INTEGER(1, clz, (T a), a ? __builtin_clzl(U(a)) - (64 - mpsref::width<T>()) : mpsref::width<T>())
MPSREF_INTEGER(1, reverse_bits, (T a), __builtin_bitreverse64(U(a)) >> (64 - mpsref::width<T>()))
MPSREF_INTEGER(2, hadd, (T a, T b), (a & b) + ((a ^ b) >> 1))
MPSREF_INTEGER(2, rhadd, (T a, T b), (a | b) - ((a ^ b) >> 1))
MPSREF_INTEGER(2, mulhi, (T a, T b), mpsref::upper_product(a, b))
MPSREF_INTEGER(2, addsat, (T a, T b), __builtin_add_overflow(a, b, &a) ? mpsref::saturated<T>(b < 0) : a)
MPSREF_INTEGER(2, subsat, (T a, T b), __builtin_sub_overflow(a, b, &a) ? mpsref::saturated<T>(b > 0) : a)
MPSREF_INTEGER(2, rotate, (T a, T b),
               ulong(U(a)) << (U(b) % mpsref::width<T>()) | ulong(U(a)) >> (U(-U(b)) % mpsref::width<T>()))
MPSREF_INTEGER(2, mul24, (T a, T b), U(a) * U(b)) // of numbers of 24 bits
MPSREF_INTEGER(3, mad24, (T a, T b, T c), U(a) * U(b) + U(c))
MPSREF_INTEGER(3, madhi, (T a, T b, T c), U(mpsref::upper_product(a, b)) + U(c))

// The bits of a * b + c beyond T are all zeros, or with a sign all like its uppermost bit, if the sum is in range.
template <class T, class = mpsref::if_integer<T>> inline T madsat(T a, T b, T c) {
    typedef mpsref::unsigned_of<T> U;
    const U low = U(ulong(U(a)) * ulong(U(b))), sum = U(low + U(c));
    const T high = T(U(mpsref::upper_product(a, b)) + U(c < 0 ? -1 : 0) + U(sum < low));
    const T expected = T(-1) < T(0) ? T(T(sum) >> (mpsref::width<T>() - 1)) : T(0);
    return high == expected ? T(sum) : mpsref::saturated<T>(high < 0);
}
MPSREF_TEMPLATE_3(madsat, V)

template <class T, class = mpsref::if_integer<T>> inline mpsref::unsigned_of<T> absdiff(T a, T b) {
    typedef mpsref::unsigned_of<T> U;
    return a < b ? U(U(b) - U(a)) : U(U(a) - U(b));
}
template <class T, int N> inline vec<mpsref::unsigned_of<T>, N> absdiff(vec<T, N> a, vec<T, N> b) {
    vec<mpsref::unsigned_of<T>, N> r;
    MPSREF_UNROLLED for (int i = 0; i < N; i++) r[i] = absdiff(a[i], b[i]);
    return r;
}

template <class T, class = mpsref::if_integer<T>> inline T extract_bits(T a, uint offset, uint count) {
    const uint unused = mpsref::width<T>() - offset - count;
    return count == 0 ? T(0) : T(T(mpsref::unsigned_of<T>(a) << unused) >> (unused + offset));
}
template <class T, class = mpsref::if_integer<T>> inline T insert_bits(T base, T inserted, uint offset, uint count) {
    const ulong mask = count == 0 ? 0 : ~0ul >> (64 - count) << offset;
    return T((ulong(base) & ~mask) | (ulong(inserted) << offset & mask));
}
template <class T, int N> inline vec<T, N> extract_bits(vec<T, N> a, uint offset, uint count) {
    MPSREF_UNROLLED for (int i = 0; i < N; i++) a[i] = extract_bits(a[i], offset, count);
    return a;
}
template <class T, int N> inline vec<T, N> insert_bits(vec<T, N> base, vec<T, N> inserted, uint offset, uint count) {
    MPSREF_UNROLLED for (int i = 0; i < N; i++) base[i] = insert_bits(T(base[i]), T(inserted[i]), offset, count);
    return base;
}

#undef MPSREF_INTEGER

} // namespace metal
