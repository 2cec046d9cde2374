// <metal_pack>: numbers from 0 to 1, or from -1 to 1, as integers of 8 or 16 bits.
#pragma once

namespace mpsref {

template <int N, int BITS, bool IS_SIGNED, class T> inline vector<T, N> unpack(uint a) {
    const float most = float((1u << (BITS - IS_SIGNED)) - 1);
    vector<T, N> r;
    MPSREF_UNROLLED for (int i = 0; i < N; i++, a = uint(ulong(a) >> BITS)) {
        const uint field = a << (32 - BITS);
        const float x = IS_SIGNED ? float(int(field) >> (32 - BITS)) : float(field >> (32 - BITS));
        r[i] = T(metal::max(x / most, -1.0f));
    }
    return r;
}
template <int N, int BITS, bool IS_SIGNED, class T> inline uint pack(vector<T, N> a) {
    const float most = float((1u << (BITS - IS_SIGNED)) - 1);
    uint r = 0;
    MPSREF_UNROLLED for (int i = 0; i < N; i++) {
        const float x = metal::rint(metal::clamp(float(a[i]), IS_SIGNED ? -1.0f : 0.0f, 1.0f) * most);
        r |= (uint(int(x)) & ~0u >> (32 - BITS)) << (BITS * i);
    }
    return r;
}

} // namespace mpsref

namespace metal {

#define MPSREF_PACKS(NAME, N, BITS, IS_SIGNED, T) \
    inline vec<T, N> unpack_##NAME##_to_##T(uint a) { return mpsref::unpack<N, BITS, IS_SIGNED, T>(a); } \
    inline uint pack_##T##_to_##NAME(vec<T, N> a) { return mpsref::pack<N, BITS, IS_SIGNED, T>(a); }
#define MPSREF_PACKS_OF(T) \
    MPSREF_PACKS(unorm4x8, 4, 8, false, T) MPSREF_PACKS(snorm4x8, 4, 8, true, T) \
    MPSREF_PACKS(unorm2x16, 2, 16, false, T) MPSREF_PACKS(snorm2x16, 2, 16, true, T)
MPSREF_PACKS_OF(float)
MPSREF_PACKS_OF(half)

} // namespace metal
