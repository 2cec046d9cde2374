// <metal_pack>: numbers from 0 to 1, or from -1 to 1, as integers of a few bits, the first in the lowest ones.
#pragma once

namespace anymetal {

// Components of BITS. For colours (IS_SRGB) all but the fourth are on the curve of sRGB.
template <bool IS_SIGNED, bool IS_SRGB, class T, int... BITS> inline vector<T, sizeof...(BITS)> unpack(uint a) {
    const int widths[] = {BITS...};
    vector<T, sizeof...(BITS)> r;
    ANYMETAL_UNROLLED for (int i = 0, at = 0; i < int(sizeof...(BITS)); at += widths[i++]) {
        const int unused = 32 - widths[i];
        const uint field = a >> at << unused;
        const float x = IS_SIGNED ? float(int(field) >> unused) : float(field >> unused);
        const float y = metal::max(x / float((1u << (widths[i] - IS_SIGNED)) - 1), -1.0f);
        const bool is_curved = IS_SRGB && i < 3;
        r[i] = T(!is_curved ? y : y <= 0.04045f ? y / 12.92f : metal::precise::pow((y + 0.055f) / 1.055f, 2.4f));
    }
    return r;
}
template <bool IS_SIGNED, bool IS_SRGB, class T, int... BITS> inline uint pack(vector<T, sizeof...(BITS)> a) {
    const int widths[] = {BITS...};
    uint r = 0;
    ANYMETAL_UNROLLED for (int i = 0, at = 0; i < int(sizeof...(BITS)); at += widths[i++]) {
        const float least = IS_SIGNED ? -1.0f : 0.0f, given = float(a[i]);
        float x = given >= least ? metal::min(given, 1.0f) : given < least ? least : 0.0f; // 0 of a NaN
        if (IS_SRGB && i < 3) x = x < 0.0031308f ? x * 12.92f : 1.055f * metal::precise::pow(x, 1.0f / 2.4f) - 0.055f;
        const float field = metal::rint(x * float((1u << (widths[i] - IS_SIGNED)) - 1));
        r |= (uint(int(field)) & ~0u >> (32 - widths[i])) << at;
    }
    return r;
}

} // namespace anymetal

namespace metal {

#define ANYMETAL_PACKS(WHOLE, UNPACKED, PACKED, N, IS_SIGNED, IS_SRGB, T, ...) \
    inline vec<T, N> unpack_##UNPACKED##_to_##T(WHOLE a) { \
        return anymetal::unpack<IS_SIGNED, IS_SRGB, T, __VA_ARGS__>(a); \
    } \
    inline WHOLE pack_##T##_to_##PACKED(vec<T, N> a) { return WHOLE(anymetal::pack<IS_SIGNED, IS_SRGB, T, __VA_ARGS__>(a)); }
#define ANYMETAL_PACKS_OF(T) \
    ANYMETAL_PACKS(uint, unorm4x8, unorm4x8, 4, false, false, T, 8, 8, 8, 8) \
    ANYMETAL_PACKS(uint, snorm4x8, snorm4x8, 4, true, false, T, 8, 8, 8, 8) \
    ANYMETAL_PACKS(uint, unorm4x8_srgb, srgb_unorm4x8, 4, false, true, T, 8, 8, 8, 8) \
    ANYMETAL_PACKS(uint, unorm2x16, unorm2x16, 2, false, false, T, 16, 16) \
    ANYMETAL_PACKS(uint, snorm2x16, snorm2x16, 2, true, false, T, 16, 16) \
    ANYMETAL_PACKS(uint, unorm10a2, unorm10a2, 4, false, false, T, 10, 10, 10, 2) \
    ANYMETAL_PACKS(ushort, unorm565, unorm565, 3, false, false, T, 5, 6, 5)
ANYMETAL_PACKS_OF(float)
ANYMETAL_PACKS_OF(half)

} // namespace metal
