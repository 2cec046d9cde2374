// Textures and samplers: part of library.h for sources that have them (ANYMETAL_IMAGES).
//
// A texture is a handle of eight bytes, the address of its entry (abi.h), as in Metal 3: structs and arrays of them have
// Metal's layout. The format is known at run time. A sampler is its state, in as many bytes. Each access is a call of a
// function that is compiled without checks and tells the launcher itself of the texel, for the line of its caller.
#pragma once
#ifndef ANYMETAL_STRICT
#include "abi.h"
#endif

namespace metal {

enum class access { sample, read, write, read_write };
enum memory_coherence { memory_coherence_threadgroup, memory_coherence_device };
enum class coord { normalized, pixel };
enum class filter { nearest, linear, bicubic };
enum class mag_filter { nearest, linear, bicubic };
enum class min_filter { nearest, linear, bicubic };
enum class mip_filter { none, nearest, linear };
enum class address { clamp_to_edge, clamp_to_zero, clamp_to_border, repeat, mirrored_repeat };
enum class s_address { clamp_to_edge, clamp_to_zero, clamp_to_border, repeat, mirrored_repeat };
enum class t_address { clamp_to_edge, clamp_to_zero, clamp_to_border, repeat, mirrored_repeat };
enum class r_address { clamp_to_edge, clamp_to_zero, clamp_to_border, repeat, mirrored_repeat };
enum class compare_func { never, less, less_equal, greater, greater_equal, equal, not_equal, always, none };
enum class border_color { transparent_black, opaque_black, opaque_white };
enum class component { x, y, z, w };

#define ANYMETAL_OPTION(NAME, T) \
    struct NAME { T value; constexpr explicit NAME(T v) : value(v) {} };
ANYMETAL_OPTION(level, float) ANYMETAL_OPTION(bias, float) ANYMETAL_OPTION(min_lod_clamp, float)
ANYMETAL_OPTION(max_anisotropy, int)
#undef ANYMETAL_OPTION
struct lod_clamp { float least, most; constexpr explicit lod_clamp(float a, float b) : least(a), most(b) {} };
#define ANYMETAL_GRADIENT(NAME, T) \
    struct NAME { T x, y; constexpr explicit NAME(T dx, T dy) : x(dx), y(dy) {} };
ANYMETAL_GRADIENT(gradient2d, float2) ANYMETAL_GRADIENT(gradient3d, float3) ANYMETAL_GRADIENT(gradientcube, float3)
#undef ANYMETAL_GRADIENT

} // namespace metal

namespace anymetal {

// The state of a sampler, from the lowest bit on. A level is a multiple of 1/256.
enum { PIXEL = 0, MAG = 1, MIN = 3, MIP = 5, ADDRESS = 7, BORDER = 16, COMPARE = 18, ANISOTROPY = 22, LEAST = 27, MOST = 39, BIAS = 51 };
constexpr ulong with_bits(ulong state, int at, int count, ulong value) {
    return (state & ~(((1ul << count) - 1) << at)) | value << at;
}
METAL_FUNC constexpr uint state_bits(ulong state, int at, int count) { return uint(state >> at) & ((1u << count) - 1); }
constexpr ulong as_level(float v) { return v <= 0 ? 0 : v >= 15.99f ? 4095 : ulong(v * 256); }
constexpr ulong with(ulong s, metal::coord v) { return with_bits(s, PIXEL, 1, ulong(v)); }
constexpr ulong with(ulong s, metal::mag_filter v) { return with_bits(s, MAG, 2, ulong(v)); }
constexpr ulong with(ulong s, metal::min_filter v) { return with_bits(s, MIN, 2, ulong(v)); }
constexpr ulong with(ulong s, metal::filter v) { return with_bits(with_bits(s, MAG, 2, ulong(v)), MIN, 2, ulong(v)); }
constexpr ulong with(ulong s, metal::mip_filter v) { return with_bits(s, MIP, 2, ulong(v)); }
constexpr ulong with(ulong s, metal::s_address v) { return with_bits(s, ADDRESS, 3, ulong(v)); }
constexpr ulong with(ulong s, metal::t_address v) { return with_bits(s, ADDRESS + 3, 3, ulong(v)); }
constexpr ulong with(ulong s, metal::r_address v) { return with_bits(s, ADDRESS + 6, 3, ulong(v)); }
constexpr ulong with(ulong s, metal::address v) { return with_bits(s, ADDRESS, 9, ulong(v) * 0111); }
constexpr ulong with(ulong s, metal::border_color v) { return with_bits(s, BORDER, 2, ulong(v)); }
constexpr ulong with(ulong s, metal::compare_func v) { return with_bits(s, COMPARE, 4, ulong(v)); }
constexpr ulong with(ulong s, metal::max_anisotropy v) { return with_bits(s, ANISOTROPY, 5, ulong(v.value)); }
constexpr ulong with(ulong s, metal::lod_clamp v) { return with_bits(with_bits(s, LEAST, 12, as_level(v.least)), MOST, 12, as_level(v.most)); }
constexpr ulong with(ulong s, metal::bias v) { return with_bits(s, BIAS, 13, ulong(int(v.value * 256) & 8191)); }
inline void pixel_coordinates_allow_clamp_to_edge_and_clamp_to_zero_without_mipmaps() {} // no constant expression calls it
template <class... S> constexpr ulong sampler_state(S... of) {
    ulong state = with_bits(0, MOST, 12, 4095);
    ((state = with(state, of)), ...);
    if (state_bits(state, PIXEL, 1)) {
        bool is_legal = !state_bits(state, MIP, 2);
        for (int i = 0; i < 3; i++) is_legal = is_legal && state_bits(state, ADDRESS + 3 * i, 3) < 3;
        if (!is_legal) pixel_coordinates_allow_clamp_to_edge_and_clamp_to_zero_without_mipmaps();
    }
    return state;
}
template <class T> constexpr constant bool is_sampler_state = false;
#define ANYMETAL_STATE(NAME) template <> constexpr constant bool is_sampler_state<metal::NAME> = true;
ANYMETAL_STATE(coord) ANYMETAL_STATE(filter) ANYMETAL_STATE(mag_filter) ANYMETAL_STATE(min_filter) ANYMETAL_STATE(mip_filter)
ANYMETAL_STATE(address) ANYMETAL_STATE(s_address) ANYMETAL_STATE(t_address) ANYMETAL_STATE(r_address)
ANYMETAL_STATE(border_color) ANYMETAL_STATE(compare_func) ANYMETAL_STATE(max_anisotropy) ANYMETAL_STATE(lod_clamp)
ANYMETAL_STATE(bias)
#undef ANYMETAL_STATE

} // namespace anymetal

namespace metal {

struct sampler {
    ulong anymetal_state;
    constexpr sampler() : anymetal_state(anymetal::sampler_state()) {}
    template <class... S, class = anymetal::enable<(sizeof...(S) > 0) && (anymetal::is_sampler_state<S> && ...)>>
    constexpr sampler(S... of) : anymetal_state(anymetal::sampler_state(of...)) {}
    constexpr sampler(const sampler &) = default;
    sampler &operator=(const sampler &) = default;
#ifdef ANYMETAL_STRICT
    constexpr sampler() __constant : anymetal_state(anymetal::sampler_state()) {}
    template <class... S, class = anymetal::enable<(sizeof...(S) > 0) && (anymetal::is_sampler_state<S> && ...)>>
    constexpr sampler(S... of) __constant : anymetal_state(anymetal::sampler_state(of...)) {}
    constexpr sampler(const __constant sampler &from) : anymetal_state(from.anymetal_state) {}
#endif
};

} // namespace metal

namespace anymetal {

enum { D1 = 1, D2, D3, CUBE, ARRAY = 8, DEPTH = 16, BUFFER = 32, SAMPLES = 64 };

// What an access of a texture allows.
template <metal::access A> struct rules {
    static constexpr void read() {
        static_assert(A != metal::access::write, "a texture with access::write is not read: declare access::read or access::read_write");
    }
    static constexpr void write() {
        static_assert(A == metal::access::write || A == metal::access::read_write,
                      "a texture is written with access::write or access::read_write alone");
    }
    static constexpr void sample() {
        static_assert(A == metal::access::sample, "a texture is sampled with access::sample alone, which is the default");
    }
    static constexpr void change() {
        static_assert(A == metal::access::read_write, "fence() and atomic functions are of textures with access::read_write");
    }
    static constexpr void size() {}
};

#ifndef ANYMETAL_STRICT
#pragma float_control(precise, on, push) // NaN stays one here, also with fast math
#ifdef ANYMETAL_CHECKED
#define ANYMETAL_BACK __builtin_return_address(0)
#define ANYMETAL_UNSANITIZED no_sanitize("all", "coverage")
#define ANYMETAL_TEXEL_CALL __attribute__((noinline, not_tail_called, ANYMETAL_UNSANITIZED)) inline
#define ANYMETAL_TELL_TEXEL(E, P, IS_WRITE) \
    if ((E)->flags & ANYMETAL_IS_WATCHED) anymetal_texel(P, (E)->size, IS_WRITE, __builtin_return_address(0))
#define ANYMETAL_TELL_FAULT(...) anymetal_texture_fault(__VA_ARGS__, __builtin_return_address(0))
#else
#define ANYMETAL_BACK nullptr
#define ANYMETAL_UNSANITIZED
#define ANYMETAL_TEXEL_CALL METAL_FUNC
#define ANYMETAL_TELL_TEXEL(E, P, IS_WRITE)
#define ANYMETAL_TELL_FAULT(...)
#endif

// What a member calls, a part of it, and a part that is not repeated.
#define ANYMETAL_PART __attribute__((always_inline, ANYMETAL_UNSANITIZED)) inline
#define ANYMETAL_SHARED_PART __attribute__((noinline, ANYMETAL_UNSANITIZED)) inline

typedef const ANYMETAL_UNTOLD anymetal_texture *texels;

// A component in a register: T is converted from and to this.
template <class T> using register_of =
    typename metal::conditional<is_floating<T>, float, typename metal::conditional<metal::is_signed<T>::value, int, uint>::type>::type;
template <class T> ANYMETAL_PART vector<T, 4> in_components(vector<register_of<T>, 4> v) { return __builtin_convertvector(v, vector<T, 4>); }
template <class T> ANYMETAL_PART vector<register_of<T>, 4> in_registers(vector<T, 4> v) {
    return __builtin_convertvector(v, vector<register_of<T>, 4>);
}

// ---------------------------------------------------------------------------------------------- formats

// A format: its kind, the logarithm of the bytes of a component, the components, and two flags. In a packed one the
// entry has the first bit and the number of bits of each component.
enum { UNORM, SNORM, UINT, SINT, FLOAT, SRGB, PACKED_UNORM, PACKED_UINT, RG11B10, RGB9E5 };
enum { IS_BGRA = 1 << 12, HAS_ALPHA = 1 << 13 };
METAL_FUNC constexpr uint format_of(uint kind, uint log, uint count) { return kind | log << 4 | count << 8 | (count == 4 ? uint(HAS_ALPHA) : 0u); }

ANYMETAL_SHARED_PART float of_srgb(float c) { return c <= 0.04045f ? c / 12.92f : metal::precise::pow((c + 0.055f) / 1.055f, 2.4f); }
ANYMETAL_SHARED_PART float to_srgb(float c) { return c <= 0.0031308f ? 12.92f * c : 1.055f * metal::precise::pow(c, 1 / 2.4f) - 0.055f; }
template <class T, int LOG> struct of_bytes;
template <class T> struct of_bytes<T, 0> { typedef uchar plain; typedef char with_sign; };
template <class T> struct of_bytes<T, 1> { typedef ushort plain; typedef short with_sign; };
template <class T> struct of_bytes<T, 2> { typedef uint plain; typedef int with_sign; };

// N components at p.
template <class E, int N> ANYMETAL_PART vector<E, N> loaded_components(const uchar *p) {
    vector<E, N> v;
    __builtin_memcpy(&v, p, sizeof(E) * N);
    return v;
}
template <class E> ANYMETAL_PART vector<E, 1> loaded_component(const uchar *p) { return *(const E *)p; }
template <class R, int N> ANYMETAL_PART vector<R, 4> padded(vector<R, N> v) {
    vector<R, 4> all = {0, 0, 0, 1};
    ANYMETAL_UNROLLED for (int i = 0; i < N; i++) all[i] = v[i];
    return all;
}
template <class R, int KIND, int LOG, int N> ANYMETAL_PART vector<R, 4> decoded(const uchar *p) {
    typedef typename of_bytes<R, LOG>::plain plain;
    typedef typename of_bytes<R, LOG>::with_sign with_sign;
    typedef vector<R, N> to;
    if constexpr (KIND == FLOAT && LOG == 2) {
        return padded<R, N>(loaded_components<float, N>(p));
    } else if constexpr (KIND == FLOAT) {
        return padded<R, N>(__builtin_convertvector(loaded_components<half, N>(p), to));
    } else if constexpr (KIND == SNORM) {
        const to v = __builtin_convertvector(loaded_components<with_sign, N>(p), to) / to(LOG ? 32767 : 127);
        return padded<R, N>(__builtin_elementwise_max(v, to(-1)));
    } else if constexpr (KIND == UNORM || KIND == SRGB) {
        to v = __builtin_convertvector(loaded_components<plain, N>(p), to) / to(LOG ? 65535 : 255);
        if constexpr (KIND == SRGB)
            ANYMETAL_UNROLLED for (int i = 0; i < N && i < 3; i++) v[i] = of_srgb(v[i]);
        return padded<R, N>(v);
    } else if constexpr (KIND == SINT) {
        return padded<R, N>(__builtin_convertvector(loaded_components<with_sign, N>(p), to));
    } else {
        return padded<R, N>(__builtin_convertvector(loaded_components<plain, N>(p), to));
    }
}

ANYMETAL_PART uint raw_texel(texels e, const uchar *p) { return e->size == 1 ? *p : e->size == 2 ? *(const ushort *)p : *(const uint *)p; }
ANYMETAL_PART float power_of_two(int n) { return __builtin_bit_cast(float, uint(n + 127) << 23); }
// A float of 5 bits of exponent and so many of the fraction, without a sign.
ANYMETAL_PART float of_small(uint raw, int bits) {
    const uint exponent = raw >> bits, fraction = raw & ((1u << bits) - 1);
    if (exponent == 31) return fraction ? __builtin_nanf("") : __builtin_inff();
    const float value = float(fraction) / float(1u << bits);
    return exponent ? (1 + value) * power_of_two(int(exponent) - 15) : value * 0x1p-14f;
}
template <class R> ANYMETAL_SHARED_PART vector<R, 4> decoded_packed(texels e, const uchar *p) {
    const uint raw = raw_texel(e, p), kind = e->format & 15;
    vector<R, 4> v = {0, 0, 0, 1};
    if (kind == RG11B10 || kind == RGB9E5) {
        if constexpr (is_floating<R>) {
            if (kind == RG11B10) return vector<R, 4>{of_small(raw & 2047, 6), of_small(raw >> 11 & 2047, 6), of_small(raw >> 22, 5), 1};
            const float scale = power_of_two(int(raw >> 27) - 24);
            return vector<R, 4>{float(raw & 511) * scale, float(raw >> 9 & 511) * scale, float(raw >> 18 & 511) * scale, 1};
        }
        return v;
    }
    for (int i = 0; i < 4; i++) {
        const uint at = uint(e->fields >> 16 * i) & 255, bits = uint(e->fields >> (16 * i + 8)) & 255, most = (1u << bits) - 1;
        if (!bits) continue;
        v[i] = R(raw >> at & most);
        if constexpr (is_floating<R>) v[i] /= R(most);
    }
    return v;
}

#define ANYMETAL_FORMATS(M, KIND, LOG) M(KIND, LOG, 1) M(KIND, LOG, 2) M(KIND, LOG, 4)
#define ANYMETAL_FLOATING(M) \
    ANYMETAL_FORMATS(M, UNORM, 0) ANYMETAL_FORMATS(M, UNORM, 1) ANYMETAL_FORMATS(M, SNORM, 0) ANYMETAL_FORMATS(M, SNORM, 1) \
    ANYMETAL_FORMATS(M, FLOAT, 1) ANYMETAL_FORMATS(M, FLOAT, 2) ANYMETAL_FORMATS(M, SRGB, 0)
#define ANYMETAL_WHOLE(M, KIND) ANYMETAL_FORMATS(M, KIND, 0) ANYMETAL_FORMATS(M, KIND, 1) ANYMETAL_FORMATS(M, KIND, 2)
template <class R> ANYMETAL_SHARED_PART vector<R, 4> decoded_any(texels e, const uchar *p) {
#define ANYMETAL_CASE(KIND, LOG, N) \
    case format_of(KIND, LOG, N): return decoded<R, KIND, LOG, N>(p);
    if constexpr (is_floating<R>) {
        switch (e->format) {
            ANYMETAL_FLOATING(ANYMETAL_CASE)
        case format_of(UNORM, 0, 4) | IS_BGRA: return decoded<R, UNORM, 0, 4>(p).zyxw;
        case format_of(SRGB, 0, 4) | IS_BGRA: return decoded<R, SRGB, 0, 4>(p).zyxw;
        }
    } else if constexpr (metal::is_signed<R>::value) {
        switch (e->format) { ANYMETAL_WHOLE(ANYMETAL_CASE, SINT) }
    } else {
        switch (e->format) { ANYMETAL_WHOLE(ANYMETAL_CASE, UINT) }
    }
#undef ANYMETAL_CASE
    return decoded_packed<R>(e, p);
}
template <class R> ANYMETAL_PART vector<R, 4> decoded_at(texels e, const uchar *p) {
    if constexpr (is_floating<R>)
        if (e->format == format_of(FLOAT, 2, 4)) return loaded_components<R, 4>(p);
    return decoded_any<R>(e, p);
}

ANYMETAL_PART float srgb_code(float v) {
#pragma clang fp contract(off)
    const float scaled = to_srgb(v) * 255;
    return __builtin_floorf(scaled + 0.5f);
}
template <int N> ANYMETAL_PART vector<float, N> limited(vector<float, N> v, float least) {
    typedef vector<float, N> V;
    v = __builtin_elementwise_min(__builtin_elementwise_max(v, V(least)), V(1));
    return v;
}
// By its bits: with fast math comparisons of the caller's, into which this is inlined, take NaN for a number.
ANYMETAL_PART bool is_nan(float x) { return (__builtin_bit_cast(uint, x) & 0x7fffffff) > 0x7f800000; }
template <int N> ANYMETAL_PART vector<float, N> without_nan(vector<float, N> v) {
    ANYMETAL_UNROLLED for (int i = 0; i < N; i++) v[i] = is_nan(v[i]) ? 0 : v[i];
    return v;
}
// To 16 bits: toward zero, as Apple's GPUs do, or to the nearest number.
template <int N> ANYMETAL_PART vector<half, N> narrowed(vector<float, N> v, bool is_nearest) {
    vector<half, N> to = __builtin_convertvector(v, vector<half, N>);
    ANYMETAL_UNROLLED for (int i = 0; i < N; i++) {
        const half one = to[i]; // of an element of a vector __builtin_bit_cast takes the first one
        if (!is_nearest && __builtin_fabsf(float(one)) > __builtin_fabsf(v[i])) to[i] = __builtin_bit_cast(half, ushort(__builtin_bit_cast(ushort, one) - 1));
    }
    return to;
}
template <class R, int KIND, int LOG, int N> ANYMETAL_PART void encode(texels e, uchar *p, vector<R, 4> all) {
    typedef typename of_bytes<R, LOG>::plain plain;
    typedef typename of_bytes<R, LOG>::with_sign with_sign;
    vector<R, N> v;
    ANYMETAL_UNROLLED for (int i = 0; i < N; i++) v[i] = all[i];
    if constexpr (KIND == FLOAT && LOG == 2) {
        __builtin_memcpy(p, &v, 4 * N);
    } else if constexpr (KIND == FLOAT) {
        const vector<half, N> to = narrowed<N>(v, e->flags & ANYMETAL_ROUNDS_TO_NEAREST);
        __builtin_memcpy(p, &to, 2 * N);
    } else if constexpr (KIND == SNORM) {
        v = __builtin_elementwise_rint(limited<N>(without_nan<N>(v), -1) * vector<R, N>(LOG ? 32767 : 127));
        const vector<with_sign, N> to = __builtin_convertvector(v, vector<with_sign, N>);
        __builtin_memcpy(p, &to, sizeof(plain) * N);
    } else if constexpr (KIND == UNORM || KIND == SRGB) {
        v = limited<N>(without_nan<N>(v), 0);
        if constexpr (KIND == SRGB)
            ANYMETAL_UNROLLED for (int i = 0; i < N && i < 3; i++) v[i] = srgb_code(v[i]) / 255;
        v = __builtin_elementwise_rint(v * vector<R, N>(LOG ? 65535 : 255));
        const vector<plain, N> to = __builtin_convertvector(v, vector<plain, N>);
        __builtin_memcpy(p, &to, sizeof(plain) * N);
    } else if constexpr (KIND == SINT) {
        const vector<R, N> most = R((1u << (LOG == 2 ? 31 : LOG ? 15 : 7)) - 1);
        v = __builtin_elementwise_min(__builtin_elementwise_max(v, -most - 1), most);
        const vector<with_sign, N> to = __builtin_convertvector(v, vector<with_sign, N>);
        __builtin_memcpy(p, &to, sizeof(plain) * N);
    } else {
        v = __builtin_elementwise_min(v, vector<R, N>(plain(-1)));
        const vector<plain, N> to = __builtin_convertvector(v, vector<plain, N>);
        __builtin_memcpy(p, &to, sizeof(plain) * N);
    }
}
ANYMETAL_PART uint to_small(float v, int fraction, bool is_nearest) {
    if (is_nan(v)) return (31u << fraction) | 1;
    if (!(v > 0)) return 0;
    if (v == __builtin_inff()) return 31u << fraction;
    const float most = (2 - 1.0f / float(1u << fraction)) * 32768;
    if (v >= most) return v > most && is_nearest && v >= 65536 ? 31u << fraction : (31u << fraction) - 1;
    const int exponent = int(__builtin_bit_cast(uint, v) >> 23) - 127, low = exponent < -14 ? -14 : exponent;
    float scaled = v * power_of_two(fraction - low);
    scaled = is_nearest ? __builtin_rintf(scaled) : __builtin_floorf(scaled);
    return uint(scaled) + (uint(low + 14) << fraction);
}
template <class R> ANYMETAL_SHARED_PART void encode_packed(texels e, uchar *p, vector<R, 4> v) {
    const uint kind = e->format & 15;
    const bool is_nearest = e->flags & ANYMETAL_ROUNDS_TO_NEAREST;
    uint raw = 0;
    if (kind == RG11B10) {
        raw = to_small(float(v.x), 6, is_nearest) | to_small(float(v.y), 6, is_nearest) << 11 | to_small(float(v.z), 5, is_nearest) << 22;
    } else if (kind == RGB9E5) {
        float most = 0, part[3];
        for (int i = 0; i < 3; i++) {
            const float x = float(v[i]);
            part[i] = is_nan(x) || !(x > 0) ? 0 : x > 65408 ? 65408 : x;
            most = part[i] > most ? part[i] : most;
        }
        int exponent = most > 0 ? int(__builtin_bit_cast(uint, most) >> 23) - 127 + 16 : 0;
        exponent = exponent < 0 ? 0 : exponent;
        if (int(most * power_of_two(24 - exponent) + 0.5f) == 512) exponent++;
        for (int i = 0; i < 3; i++) raw |= uint(part[i] * power_of_two(24 - exponent) + 0.5f) << 9 * i;
        raw |= uint(exponent) << 27;
    } else {
        for (int i = 0; i < 4; i++) {
            const uint at = uint(e->fields >> 16 * i) & 255, bits = uint(e->fields >> (16 * i + 8)) & 255, most = (1u << bits) - 1;
            if (!bits) continue;
            if constexpr (is_floating<R>) {
                const float x = is_nan(float(v[i])) ? 0 : v[i] < 0 ? 0 : v[i] > 1 ? 1 : float(v[i]);
                raw |= uint(__builtin_rintf(x * float(most))) << at;
            } else {
                raw |= (uint(v[i]) < most ? uint(v[i]) : most) << at;
            }
        }
    }
    if (e->size == 1) *p = uchar(raw);
    else if (e->size == 2) *(ushort *)p = ushort(raw);
    else *(uint *)p = raw;
}
template <class R> ANYMETAL_SHARED_PART void encode_any(texels e, uchar *p, vector<R, 4> v) {
#define ANYMETAL_CASE(KIND, LOG, N) \
    case format_of(KIND, LOG, N): return encode<R, KIND, LOG, N>(e, p, v);
    if constexpr (is_floating<R>) {
        switch (e->format) {
            ANYMETAL_FLOATING(ANYMETAL_CASE)
        case format_of(UNORM, 0, 4) | IS_BGRA: return encode<R, UNORM, 0, 4>(e, p, v.zyxw);
        case format_of(SRGB, 0, 4) | IS_BGRA: return encode<R, SRGB, 0, 4>(e, p, v.zyxw);
        }
    } else if constexpr (metal::is_signed<R>::value) {
        switch (e->format) { ANYMETAL_WHOLE(ANYMETAL_CASE, SINT) }
    } else {
        switch (e->format) { ANYMETAL_WHOLE(ANYMETAL_CASE, UINT) }
    }
#undef ANYMETAL_CASE
    encode_packed<R>(e, p, v);
}
template <class R> ANYMETAL_PART void encode_at(texels e, uchar *p, vector<R, 4> v) {
    if constexpr (is_floating<R>)
        if (e->format == format_of(FLOAT, 2, 4)) {
            __builtin_memcpy(p, &v, 16);
            return;
        }
    encode_any<R>(e, p, v);
}

// ---------------------------------------------------------------------------------------------- places

ANYMETAL_PART uint at_level(uint size, uint lod) { return size >> lod ? size >> lod : 1; }
ANYMETAL_PART uint size_of_level(uint size, uint lod) { return lod ? lod < 32 ? at_level(size, lod) : 1 : size; }

// A texel that exists. Levels follow each other.
ANYMETAL_PART uchar *texel_at(texels e, uint x, uint y, uint z, uint slice, uint lod) {
    ulong first = 0;
    uint width = e->width, height = e->height, depth = e->depth;
    for (uint i = 0; i < lod; i++) {
        first += ulong(width) * height * depth * e->count;
        width = at_level(width, 1), height = at_level(height, 1), depth = at_level(depth, 1);
    }
    return e->data + (first + ((ulong(slice) * depth + z) * height + y) * width + x) * e->size;
}
ANYMETAL_PART bool has_texel(texels e, uint x, uint y, uint z, uint slice, uint lod) {
    if (!lod) return x < e->width && y < e->height && z < e->depth && slice < e->count;
    return lod < e->levels && x < at_level(e->width, lod) && y < at_level(e->height, lod) && z < at_level(e->depth, lod) && slice < e->count;
}

template <class T> ANYMETAL_TEXEL_CALL vector<T, 4> load(texels e, uint x, uint y, uint z, uint slice, uint lod) {
    typedef register_of<T> R;
    if (!has_texel(e, x, y, z, slice, lod)) {
        ANYMETAL_TELL_FAULT(ANYMETAL_TEXEL, e, 0, x, y, z, slice, lod);
        return vector<T, 4>{0, 0, 0, T(!(e->format & HAS_ALPHA))};
    }
    const uchar *p = texel_at(e, x, y, z, slice, lod);
    ANYMETAL_TELL_TEXEL(e, p, 0);
    return in_components<T>(decoded_at<R>(e, p));
}
template <class T> ANYMETAL_TEXEL_CALL void store(texels e, vector<T, 4> v, uint x, uint y, uint z, uint slice, uint lod) {
    typedef register_of<T> R;
    if (!has_texel(e, x, y, z, slice, lod)) {
        ANYMETAL_TELL_FAULT(ANYMETAL_TEXEL, e, 1, x, y, z, slice, lod);
        return;
    }
    uchar *p = texel_at(e, x, y, z, slice, lod);
    ANYMETAL_TELL_TEXEL(e, p, 1);
    encode_at<R>(e, p, in_registers<T>(v));
}

// Whether atomic functions have the format: one component of 32 bits, or two for ulong.
template <class T> ANYMETAL_PART bool is_atomic(texels e) {
    return e->format == format_of(metal::is_signed<T>::value ? SINT : UINT, 2, sizeof(T) / 4);
}
enum { FETCH_ADD, FETCH_SUB, FETCH_MIN, FETCH_MAX, FETCH_AND, FETCH_OR, FETCH_XOR, EXCHANGE, LOAD, STORE };
template <class T> ANYMETAL_TEXEL_CALL vector<T, 4> change(texels e, int how, vector<T, 4> v, uint x, uint y, uint z, uint slice) {
    if (!has_texel(e, x, y, z, slice, 0)) {
        ANYMETAL_TELL_FAULT(ANYMETAL_TEXEL, e, uint(how != LOAD), x, y, z, slice, 0);
        return vector<T, 4>{0, 0, 0, 1};
    }
    if (!is_atomic<T>(e)) {
        ANYMETAL_TELL_FAULT(ANYMETAL_NO_ATOMIC, e, uint(how != LOAD), x, y, z, slice, 0);
        return vector<T, 4>{0, 0, 0, 1};
    }
    T *p = (T *)texel_at(e, x, y, z, slice, 0), old = 0;
#ifdef ANYMETAL_CHECKED
    anymetal_texel_atomic(p, sizeof(T), how == LOAD ? 0 : how == STORE ? 2 : 1, __builtin_return_address(0));
#endif
    switch (how) {
    case FETCH_ADD: old = __atomic_fetch_add(p, v.x, 0); break;
    case FETCH_SUB: old = __atomic_fetch_sub(p, v.x, 0); break;
    case FETCH_MIN: old = __atomic_fetch_min(p, v.x, 0); break;
    case FETCH_MAX: old = __atomic_fetch_max(p, v.x, 0); break;
    case FETCH_AND: old = __atomic_fetch_and(p, v.x, 0); break;
    case FETCH_OR: old = __atomic_fetch_or(p, v.x, 0); break;
    case FETCH_XOR: old = __atomic_fetch_xor(p, v.x, 0); break;
    case LOAD: old = __atomic_load_n(p, 0); break;
    default: old = __atomic_exchange_n(p, v.x, 0);
    }
    return vector<T, 4>{old, 0, 0, 1};
}
template <class T> ANYMETAL_TEXEL_CALL bool change_if(texels e, vector<T, 4> *expected, vector<T, 4> v, uint x, uint y, uint z, uint slice) {
    if (!has_texel(e, x, y, z, slice, 0)) {
        ANYMETAL_TELL_FAULT(ANYMETAL_TEXEL, e, 1, x, y, z, slice, 0);
        return false;
    }
    if (!is_atomic<T>(e)) {
        ANYMETAL_TELL_FAULT(ANYMETAL_NO_ATOMIC, e, 1, x, y, z, slice, 0);
        return false;
    }
    T *p = (T *)texel_at(e, x, y, z, slice, 0), old = (*expected).x;
#ifdef ANYMETAL_CHECKED
    anymetal_texel_atomic(p, sizeof(T), 1, __builtin_return_address(0));
#endif
    const bool is_changed = __atomic_compare_exchange_n(p, &old, v.x, true, 0, 0);
    *expected = vector<T, 4>{old, 0, 0, 1};
    return is_changed;
}

// ---------------------------------------------------------------------------------------------- samples

// The texel that integer coordinates outside stand for; -1: none, but zero or the border.
ANYMETAL_PART int addressed(int i, int n, uint mode) {
    if (uint(i) < uint(n)) return i;
    switch (mode) {
    case 0: return i < 0 ? 0 : n - 1;
    case 1: case 2: return -1;
    case 3: return (i % n + n) % n;
    }
    const int at = (i % (2 * n) + 2 * n) % (2 * n);
    return at < n ? at : 2 * n - 1 - at;
}
ANYMETAL_PART int whole(float x) { return !(x > -1e9f) ? -1000000000 : x > 1e9f ? 1000000000 : int(__builtin_floorf(x)); }

// The face of a direction, and where on it, from 0 to 1.
ANYMETAL_PART uint face_of(float3 d, float &s, float &t) {
    const float x = __builtin_fabsf(d.x), y = __builtin_fabsf(d.y), z = __builtin_fabsf(d.z);
    uint face;
    float m;
    if (x >= y && x >= z) face = d.x < 0, m = x, s = d.x < 0 ? d.z : -d.z, t = -d.y;
    else if (y >= z) face = 2 + (d.y < 0), m = y, s = d.x, t = d.y < 0 ? -d.z : d.z;
    else face = 4 + (d.z < 0), m = z, s = d.z < 0 ? -d.x : d.x, t = -d.y;
    s = (s / m + 1) / 2, t = (t / m + 1) / 2;
    return face;
}
// The direction of a point of a face, which may lie outside of it.
ANYMETAL_PART float3 direction_of(uint face, float s, float t) {
    s = 2 * s - 1, t = 2 * t - 1;
    switch (face) {
    case 0: return float3{1, -t, -s};
    case 1: return float3{-1, -t, s};
    case 2: return float3{s, 1, t};
    case 3: return float3{s, -1, -t};
    case 4: return float3{s, -t, 1};
    }
    return float3{-s, -t, -1};
}

// Four texels, of two rows so many bytes apart, by their weights.
template <int KIND, int LOG, int N> ANYMETAL_PART float4 blended_as(const uchar *p, ulong row, float u, float v) {
    constexpr uint size = N << LOG;
    const float4 top = decoded<float, KIND, LOG, N>(p) * (1 - u) + decoded<float, KIND, LOG, N>(p + size) * u;
    const float4 low = decoded<float, KIND, LOG, N>(p + row) * (1 - u) + decoded<float, KIND, LOG, N>(p + row + size) * u;
    return top * (1 - v) + low * v;
}
ANYMETAL_PART float4 blended(texels e, const uchar *p, ulong row, float u, float v) {
    switch (e->format) {
    case format_of(FLOAT, 2, 4): return blended_as<FLOAT, 2, 4>(p, row, u, v);
    case format_of(FLOAT, 1, 4): return blended_as<FLOAT, 1, 4>(p, row, u, v);
    case format_of(UNORM, 0, 4): return blended_as<UNORM, 0, 4>(p, row, u, v);
    }
    const float4 top = decoded_any<float>(e, p) * (1 - u) + decoded_any<float>(e, p + e->size) * u;
    return top * (1 - v) + (decoded_any<float>(e, p + row) * (1 - u) + decoded_any<float>(e, p + row + e->size) * u) * v;
}

struct footprint { // of a sample in one level
    texels e;
    ulong state;
    uint slice, lod;
    int width, height, depth;
    void *back;
};
template <class R, int D> ANYMETAL_PART vector<R, 4> fetch(const footprint &f, int x, int y, int z) {
    texels e = f.e;
    int a, b, c = 0;
    uint slice = f.slice;
    if constexpr ((D & 7) == CUBE) {
        a = x, b = y;
        if (uint(x) >= uint(f.width) || uint(y) >= uint(f.height)) { // on the face beside it
            float s, t;
            const float3 d = direction_of(slice % 6, (float(x) + 0.5f) / float(f.width), (float(y) + 0.5f) / float(f.height));
            slice = slice / 6 * 6 + face_of(d, s, t);
            a = addressed(whole(s * float(f.width)), f.width, 0), b = addressed(whole(t * float(f.height)), f.height, 0);
        }
    } else {
        a = addressed(x, f.width, state_bits(f.state, ADDRESS, 3));
        b = (D & 7) >= D2 ? addressed(y, f.height, state_bits(f.state, ADDRESS + 3, 3)) : 0;
        c = (D & 7) == D3 ? addressed(z, f.depth, state_bits(f.state, ADDRESS + 6, 3)) : 0;
        if ((a | b | c) < 0) {
            const uint mode = state_bits(f.state, a < 0 ? ADDRESS : b < 0 ? ADDRESS + 3 : ADDRESS + 6, 3);
            const uint border = mode == 2 ? state_bits(f.state, BORDER, 2) : 0;
            const R color = R(border == 2), alpha = R(mode == 2 ? border > 0 : !(e->format & HAS_ALPHA));
            return vector<R, 4>{color, color, color, alpha};
        }
    }
    const uchar *p = texel_at(e, uint(a), uint(b), uint(c), slice, f.lod);
#ifdef ANYMETAL_CHECKED
    if (e->flags & ANYMETAL_IS_WATCHED) anymetal_texel(p, e->size, 0, f.back);
#endif
    return decoded_at<R>(e, p);
}
ANYMETAL_PART footprint footprint_of(texels e, ulong state, uint slice, uint lod, void *back) {
    return {e, state, slice, lod, int(size_of_level(e->width, lod)), int(size_of_level(e->height, lod)), int(size_of_level(e->depth, lod)), back};
}
ANYMETAL_PART bool passes(uint compare, float reference, float texel) {
    switch (compare) {
    case 1: return reference < texel;
    case 2: return reference <= texel;
    case 3: return reference > texel;
    case 4: return reference >= texel;
    case 5: return reference == texel;
    case 6: return reference != texel;
    case 7: return true;
    }
    return false;
}
// One level. With `reference` the texels of a depth texture are 1 where the comparison holds.
template <class R, int D, bool IS_COMPARED>
ANYMETAL_PART vector<R, 4> sampled_level(const footprint &f, float3 at, int3 offset, uint filter, float reference) {
    const auto one = [&](int x, int y, int z) __attribute__((always_inline, ANYMETAL_UNSANITIZED)) {
        vector<R, 4> v = fetch<R, D>(f, x, y, z);
        if constexpr (IS_COMPARED) v = vector<R, 4>(R(passes(state_bits(f.state, COMPARE, 4), reference, float(v.x))));
        return v;
    };
    if (!state_bits(f.state, PIXEL, 1) || (D & 7) == CUBE) at *= float3{float(f.width), float(f.height), float(f.depth)};
    const auto nearest = [&]() __attribute__((always_inline, ANYMETAL_UNSANITIZED)) { return one(whole(at.x) + offset.x, whole(at.y) + offset.y, whole(at.z) + offset.z); };
    if constexpr (!is_floating<R>) {
        return nearest();
    } else {
        if (!filter) return nearest();
        at -= 0.5f;
        const int x = whole(at.x), y = whole(at.y), z = whole(at.z);
        const float u = at.x - float(x), v = at.y - float(y), w = at.z - float(z);
        const int i = x + offset.x, j = y + offset.y, k = z + offset.z;
        if constexpr ((D & 7) == D1) {
            return one(i, 0, 0) * (1 - u) + one(i + 1, 0, 0) * u;
        } else {
            if constexpr ((D & 7) == D2 && !IS_COMPARED) {
                const bool is_inside = uint(i) < uint(f.width - 1) && uint(j) < uint(f.height - 1);
                if (is_inside && !(f.e->flags & ANYMETAL_IS_WATCHED)) {
                    const uchar *p = texel_at(f.e, uint(i), uint(j), 0, f.slice, f.lod);
                    return blended(f.e, p, ulong(uint(f.width)) * f.e->size, u, v);
                }
            }
            const auto plane = [&](int k) __attribute__((always_inline, ANYMETAL_UNSANITIZED)) {
                vector<R, 4> q00, q10, q01, q11;
                q00 = one(i, j, k), q10 = one(i + 1, j, k), q01 = one(i, j + 1, k), q11 = one(i + 1, j + 1, k);
                if constexpr ((D & 7) == CUBE) { // at a corner three faces meet, and the fourth texel is their mean
                    const bool left = i < 0, right = i + 1 >= f.width, top = j < 0, bottom = j + 1 >= f.height;
                    if (left && top) q00 = (q10 + q01 + q11) / 3;
                    if (right && top) q10 = (q00 + q01 + q11) / 3;
                    if (left && bottom) q01 = (q00 + q10 + q11) / 3;
                    if (right && bottom) q11 = (q00 + q10 + q01) / 3;
                }
                return (q00 * (1 - u) + q10 * u) * (1 - v) + (q01 * (1 - u) + q11 * u) * v;
            };
            if constexpr ((D & 7) == D3)
                return plane(k) * (1 - w) + plane(k + 1) * w;
            else
                return plane(0);
        }
    }
}

ANYMETAL_PART bool is_finite(float x) { return (__builtin_bit_cast(uint, x) & 0x7f800000) != 0x7f800000; }
template <int D> ANYMETAL_PART void check_sample(texels e, ulong state, float3 at, bool is_whole, void *back) {
#ifdef ANYMETAL_CHECKED
    const bool is_known = is_finite(at.x) && is_finite(at.y) && is_finite(at.z);
    if (!is_known) anymetal_texture_fault(ANYMETAL_NO_COORDINATE, e, 0, 0, 0, 0, 0, 0, back);
    if (is_whole && (state_bits(state, MAG, 2) | state_bits(state, MIN, 2))) anymetal_texture_fault(ANYMETAL_NO_FILTER, e, 0, 0, 0, 0, 0, 0, back);
    if (!e->width) anymetal_texture_fault(ANYMETAL_TEXEL, e, 0, 0, 0, 0, 0, 0, back);
#endif
}
template <class T, int D, bool IS_COMPARED>
ANYMETAL_SHARED_PART vector<T, 4> sampled_any(texels e, ulong state, float3 at, int3 offset, uint slice, float lod, float reference, void *back) {
    typedef register_of<T> R;
    if (!e->width) return vector<T, 4>{0, 0, 0, 1};
    if constexpr ((D & 7) == CUBE) {
        float s, t;
        slice = (slice < e->count / 6 ? slice : e->count / 6 - 1) * 6 + face_of(at, s, t);
        at = float3{s, t, 0};
    }
    if (slice >= e->count) slice = e->count - 1; // no address mode, the last one instead
    const int bias = int(state_bits(state, BIAS, 13) << 19) >> 19;
    const float least = float(state_bits(state, LEAST, 12)) / 256, most = float(state_bits(state, MOST, 12)) / 256;
    lod += float(bias) / 256;
    lod = lod < least ? least : lod > most ? most : lod;
    const uint mip = e->levels > 1 ? state_bits(state, MIP, 2) : 0, filter = state_bits(state, lod > 0 ? MIN : MAG, 2);
    const uint last = e->levels - 1;
    if (!mip) return in_components<T>(sampled_level<R, D, IS_COMPARED>(footprint_of(e, state, slice, 0, back), at, offset, filter, reference));
    lod = lod > 0 ? lod : 0;
    const uint near = mip == 1 ? uint(lod + 0.5f) : uint(lod), first = near < last ? near : last;
    const auto one = sampled_level<R, D, IS_COMPARED>(footprint_of(e, state, slice, first, back), at, offset, filter, reference);
    const float rest = lod - float(uint(lod));
    if constexpr (is_floating<T>)
        if (mip == 2 && rest > 0 && first < last) {
            const auto two = sampled_level<R, D, IS_COMPARED>(footprint_of(e, state, slice, first + 1, back), at, offset, filter, reference);
            return in_components<T>(one * (1 - rest) + two * rest);
        }
    return in_components<T>(one);
}
// The nearest texel of the first level, inside of a texture, and the rest.
template <class T, int D, bool IS_COMPARED = false>
ANYMETAL_TEXEL_CALL vector<T, 4> sampled(texels e, ulong state, float3 at, int3 offset, uint slice, float lod, float reference = 0) {
    typedef register_of<T> R;
    void *const back = ANYMETAL_BACK;
    if constexpr ((D & 7) != CUBE && !IS_COMPARED)
        if (!state_bits(state, MAG, 6)) {
            const bool is_pixel = state_bits(state, PIXEL, 1);
            const float x = __builtin_floorf(is_pixel ? at.x : at.x * float(e->width)) + float(offset.x);
            const float y = (D & 7) == D1 ? 0 : __builtin_floorf(is_pixel ? at.y : at.y * float(e->height)) + float(offset.y);
            const float z = (D & 7) != D3 ? 0 : __builtin_floorf(is_pixel ? at.z : at.z * float(e->depth)) + float(offset.z);
            if (x >= 0 && x < float(e->width) && y >= 0 && y < float(e->height) && z >= 0 && z < float(e->depth)) {
                const uchar *p = texel_at(e, uint(int(x)), uint(int(y)), uint(int(z)), slice < e->count ? slice : e->count - 1, 0);
                ANYMETAL_TELL_TEXEL(e, p, 0);
                return in_components<T>(decoded_at<R>(e, p));
            }
        }
    check_sample<D>(e, state, at, !is_floating<T>, back); // what is nearest and inside has nothing to check
    return sampled_any<T, D, IS_COMPARED>(e, state, at, offset, slice, lod, reference, back);
}
// Of a component, the four texels of a linear sample: counter-clockwise from the lower left.
template <class T, int D, bool IS_COMPARED = false>
ANYMETAL_TEXEL_CALL vector<T, 4> gathered(texels e, ulong state, float3 at, int3 offset, uint slice, int of, float reference = 0) {
    typedef register_of<T> R;
    void *const back = ANYMETAL_BACK;
    check_sample<D>(e, state, at, false, back);
    if (!e->width) return vector<T, 4>{0, 0, 0, 1};
    if constexpr ((D & 7) == CUBE) {
        float s, t;
        slice = (slice < e->count / 6 ? slice : e->count / 6 - 1) * 6 + face_of(at, s, t);
        at = float3{s, t, 0};
    }
    if (slice >= e->count) slice = e->count - 1;
    const footprint f = footprint_of(e, state, slice, 0, back);
    if (!state_bits(state, PIXEL, 1) || (D & 7) == CUBE) at *= float3{float(f.width), float(f.height), 0};
    const int x = whole(at.x - 0.5f) + offset.x, y = whole(at.y - 0.5f) + offset.y;
    const int places[4][2] = {{x, y + 1}, {x + 1, y + 1}, {x + 1, y}, {x, y}};
    vector<T, 4> all;
    for (int i = 0; i < 4; i++) {
        const R v = fetch<R, D>(f, places[i][0], places[i][1], 0)[of];
        all[i] = IS_COMPARED ? T(passes(state_bits(state, COMPARE, 4), reference, float(v))) : T(v);
    }
    return all;
}
ANYMETAL_SHARED_PART float lod_of(texels e, float3 x, float3 y) {
    const float3 size = {float(e->width), float(e->height), float(e->depth)};
    x *= size, y *= size;
    const float a = x.x * x.x + x.y * x.y + x.z * x.z, b = y.x * y.x + y.y * y.y + y.z * y.z;
    return 0.5f * metal::precise::log2(a > b ? a : b);
}
ANYMETAL_PART float lod_of(texels e, metal::gradient2d g) { return lod_of(e, float3{g.x.x, g.x.y, 0}, float3{g.y.x, g.y.y, 0}); }
ANYMETAL_PART float lod_of(texels e, metal::gradient3d g) { return lod_of(e, g.x, g.y); }
ANYMETAL_PART float lod_of(texels e, metal::gradientcube g) { return lod_of(e, g.x / 2, g.y / 2); }
// Outside of fragment functions there is no other level than 0 to which a bias could be added.
ANYMETAL_PART float lod_of(texels, metal::level l) { return l.value; }
ANYMETAL_PART float lod_of(texels, metal::bias) { return 0; }
ANYMETAL_PART float larger(float a, float b) { return a > b ? a : b; }
ANYMETAL_PART uint face_slice(uint face, uint layer) { return face < 6 ? 6 * layer + face : ~0u; }
ANYMETAL_PART uint sample_slice(texels e, uint layer, uint n) { return n < e->samples ? layer * e->samples + n : ~0u; }
ANYMETAL_PART float lod_of(texels, metal::min_lod_clamp l) { return l.value > 0 ? l.value : 0; }
#pragma float_control(pop)
#endif

template <class T> using four = vector<T, 4>;

// A member: its result, name and parameters, the rule for its access, and the value.
#ifdef ANYMETAL_STRICT
template <class T> T any();
template <> inline void any<void>() {}
#define ANYMETAL_MEMBER_OF_TEXTURE(RESULT, NAME, PARAMETERS, RULE, ...) \
    RESULT NAME PARAMETERS const { anymetal::rules<A>::RULE(); return anymetal::any<RESULT>(); } \
    RESULT NAME PARAMETERS const __constant { anymetal::rules<A>::RULE(); return anymetal::any<RESULT>(); }
#else
#define ANYMETAL_MEMBER_OF_TEXTURE(RESULT, NAME, PARAMETERS, RULE, ...) \
    METAL_FUNC RESULT NAME PARAMETERS const { anymetal::rules<A>::RULE(); return __VA_ARGS__; }
#endif
#define ANYMETAL_M ANYMETAL_MEMBER_OF_TEXTURE
#define ANYMETAL_P(...) __VA_ARGS__
#define ANYMETAL_E this->anymetal_entry

} // namespace anymetal
namespace metal {
// What sparse textures return; these are refused where they are used.
template <class T> struct sparse_color {
    T anymetal_value;
    T value() const { return anymetal_value; }
    bool resident() const { return true; }
};
} // namespace metal
namespace anymetal {

template <class T, metal::access A, int D> struct texture {
    static_assert(is_floating<T> || __is_integral(T), "the components of a texture are half, float, short, ushort, int, uint or, for atomic functions, ulong");
    static_assert(!(D & DEPTH) || __is_same(T, float), "the component of a depth texture is float");
    static_assert(!(D & DEPTH) || A == metal::access::sample || A == metal::access::read, "a depth texture has access::sample or access::read");
    static_assert(!(D & SAMPLES) || A == metal::access::read, "a multisampled texture has access::read");
    static_assert(!(D & BUFFER) || A != metal::access::sample, "a texture_buffer is not sampled");
    typedef void anymetal_is_texture;
    enum { anymetal_kind = D, anymetal_access = int(A), anymetal_code = (is_floating<T> ? sizeof(T) == 2 ? 'h' : 'f' : metal::is_signed<T>::value ? 'i' : sizeof(T) == 8 ? 'l' : 'u') };
#ifdef ANYMETAL_STRICT
    ulong anymetal_entry;
#else
    texels anymetal_entry;
#endif
    ANYMETAL_M(uint, get_width, (), size, ANYMETAL_E->width)
#define ANYMETAL_LACKING(RESULT, NAME, WHY) \
    template <class... P> RESULT NAME(P...) const { static_assert(sizeof...(P) > 99, #NAME ": " WHY); return RESULT(); }
#define ANYMETAL_WITHOUT_LOD(NAME) ANYMETAL_LACKING(float, NAME, "the level of a sample follows from derivatives, which fragment functions have and kernels do not")
#define ANYMETAL_SPARSE(NAME) ANYMETAL_LACKING(metal::sparse_color<T>, NAME, "sparse textures are not supported; all texels of others are resident")
    ANYMETAL_WITHOUT_LOD(calculate_clamped_lod) ANYMETAL_WITHOUT_LOD(calculate_unclamped_lod)
    ANYMETAL_SPARSE(sparse_read) ANYMETAL_SPARSE(sparse_sample) ANYMETAL_SPARSE(sparse_sample_compare)
    ANYMETAL_SPARSE(sparse_gather) ANYMETAL_SPARSE(sparse_gather_compare)
#undef ANYMETAL_LACKING
#undef ANYMETAL_WITHOUT_LOD
#undef ANYMETAL_SPARSE
};

} // namespace anymetal

namespace metal {

#define ANYMETAL_HEIGHT ANYMETAL_M(uint, get_width, (uint lod = 0), size, anymetal::size_of_level(ANYMETAL_E->width, lod)) \
    ANYMETAL_M(uint, get_height, (uint lod = 0), size, anymetal::size_of_level(ANYMETAL_E->height, lod)) \
    ANYMETAL_M(uint, get_num_mip_levels, (), size, ANYMETAL_E->levels)
#define ANYMETAL_LAYERS(VALUE) ANYMETAL_M(uint, get_array_size, (), size, VALUE)
#ifdef ANYMETAL_CHECKED
#define ANYMETAL_FENCE ANYMETAL_M(void, fence, (), change, anymetal_texel_fence())
#else
#define ANYMETAL_FENCE ANYMETAL_M(void, fence, (), change, void())
#endif
// Both forms of integer coordinates; C is the type of the coordinates, I that of the other numbers.
#define ANYMETAL_READ(RESULT, I, COORDINATES, PICK, X, Y, Z, SLICE) \
    ANYMETAL_M(RESULT, read, (ANYMETAL_P COORDINATES, I lod = 0), read, anymetal::load<T>(ANYMETAL_E, X, Y, Z, SLICE, lod) PICK)
#define ANYMETAL_WRITE(I, COORDINATES, X, Y, Z, SLICE) \
    ANYMETAL_M(void, write, (vec<T, 4> v, ANYMETAL_P COORDINATES, I lod = 0), write, anymetal::store<T>(ANYMETAL_E, v, X, Y, Z, SLICE, lod))
#define ANYMETAL_READ_WRITE(I, COORDINATES, X, Y, Z, SLICE) \
    ANYMETAL_READ(anymetal::four<T>, I, COORDINATES, , X, Y, Z, SLICE) ANYMETAL_WRITE(I, COORDINATES, X, Y, Z, SLICE)

#define ANYMETAL_FETCH(NAME, HOW, COORDINATES, X, Y, Z, SLICE) \
    ANYMETAL_M(anymetal::four<T>, atomic_##NAME, (ANYMETAL_P COORDINATES, vec<T, 4> v), change, anymetal::change<T>(ANYMETAL_E, HOW, v, X, Y, Z, SLICE))
#if __METAL_VERSION__ >= 310
#define ANYMETAL_ATOMICS(COORDINATES, X, Y, Z, SLICE) \
    ANYMETAL_FETCH(fetch_add, anymetal::FETCH_ADD, COORDINATES, X, Y, Z, SLICE) ANYMETAL_FETCH(fetch_sub, anymetal::FETCH_SUB, COORDINATES, X, Y, Z, SLICE) \
    ANYMETAL_FETCH(fetch_min, anymetal::FETCH_MIN, COORDINATES, X, Y, Z, SLICE) ANYMETAL_FETCH(fetch_max, anymetal::FETCH_MAX, COORDINATES, X, Y, Z, SLICE) \
    ANYMETAL_FETCH(fetch_and, anymetal::FETCH_AND, COORDINATES, X, Y, Z, SLICE) ANYMETAL_FETCH(fetch_or, anymetal::FETCH_OR, COORDINATES, X, Y, Z, SLICE) \
    ANYMETAL_FETCH(fetch_xor, anymetal::FETCH_XOR, COORDINATES, X, Y, Z, SLICE) ANYMETAL_FETCH(exchange, anymetal::EXCHANGE, COORDINATES, X, Y, Z, SLICE) \
    ANYMETAL_M(anymetal::four<T>, atomic_load, COORDINATES, change, anymetal::change<T>(ANYMETAL_E, anymetal::LOAD, 0, X, Y, Z, SLICE)) \
    ANYMETAL_M(void, atomic_store, (vec<T, 4> v, ANYMETAL_P COORDINATES), change, (void)anymetal::change<T>(ANYMETAL_E, anymetal::STORE, v, X, Y, Z, SLICE)) \
    ANYMETAL_M(void, atomic_min, (ANYMETAL_P COORDINATES, vec<T, 4> v), change, (void)anymetal::change<T>(ANYMETAL_E, anymetal::FETCH_MIN, v, X, Y, Z, SLICE)) \
    ANYMETAL_M(void, atomic_max, (ANYMETAL_P COORDINATES, vec<T, 4> v), change, (void)anymetal::change<T>(ANYMETAL_E, anymetal::FETCH_MAX, v, X, Y, Z, SLICE)) \
    ANYMETAL_M(bool, atomic_compare_exchange_weak, (ANYMETAL_P COORDINATES, thread vec<T, 4> *expected, vec<T, 4> v), change, \
               anymetal::change_if<T>(ANYMETAL_E, expected, v, X, Y, Z, SLICE))
#else
#define ANYMETAL_ATOMICS(COORDINATES, X, Y, Z, SLICE)
#endif

#define ANYMETAL_SAMPLE_AT(RESULT, NAME, PARAMETERS, PICK, PLACE, OFFSET, SLICE, LOD, ...) \
    ANYMETAL_M(RESULT, NAME, PARAMETERS, sample, \
               anymetal::sampled<T, KIND, ##__VA_ARGS__>(ANYMETAL_E, s.anymetal_state, PLACE, OFFSET, SLICE, LOD ANYMETAL_REFERENCE_##NAME) PICK)
#define ANYMETAL_REFERENCE_sample
#define ANYMETAL_REFERENCE_sample_compare , compare_value
// Each option of the level, with an offset (OF: its parameter). GRADIENT is the type of one.
#define ANYMETAL_SAMPLES(RESULT, NAME, COORDINATES, PICK, PLACE, OF, OFFSET, SLICE, GRADIENT, ...) \
    ANYMETAL_SAMPLE_AT(RESULT, NAME, (sampler s, ANYMETAL_P COORDINATES ANYMETAL_P OF), PICK, PLACE, OFFSET, SLICE, 0, ##__VA_ARGS__) \
    ANYMETAL_WITH_LOD(RESULT, NAME, COORDINATES, PICK, PLACE, OF, OFFSET, SLICE, level, ##__VA_ARGS__) \
    ANYMETAL_WITH_LOD(RESULT, NAME, COORDINATES, PICK, PLACE, OF, OFFSET, SLICE, bias, ##__VA_ARGS__) \
    ANYMETAL_WITH_LOD(RESULT, NAME, COORDINATES, PICK, PLACE, OF, OFFSET, SLICE, min_lod_clamp, ##__VA_ARGS__) \
    ANYMETAL_WITH_LOD(RESULT, NAME, COORDINATES, PICK, PLACE, OF, OFFSET, SLICE, GRADIENT, ##__VA_ARGS__) \
    ANYMETAL_SAMPLE_AT(RESULT, NAME, (sampler s, ANYMETAL_P COORDINATES, bias l, min_lod_clamp m ANYMETAL_P OF), PICK, PLACE, OFFSET, SLICE, \
                       anymetal::lod_of(ANYMETAL_E, m), ##__VA_ARGS__) \
    ANYMETAL_SAMPLE_AT(RESULT, NAME, (sampler s, ANYMETAL_P COORDINATES, GRADIENT l, min_lod_clamp m ANYMETAL_P OF), PICK, PLACE, OFFSET, SLICE, \
                       anymetal::larger(anymetal::lod_of(ANYMETAL_E, l), m.value), ##__VA_ARGS__)
#define ANYMETAL_WITH_LOD(RESULT, NAME, COORDINATES, PICK, PLACE, OF, OFFSET, SLICE, OPTION, ...) \
    ANYMETAL_SAMPLE_AT(RESULT, NAME, (sampler s, ANYMETAL_P COORDINATES, OPTION l ANYMETAL_P OF), PICK, PLACE, OFFSET, SLICE, \
                       anymetal::lod_of(ANYMETAL_E, l), ##__VA_ARGS__)

#define ANYMETAL_TEXTURE(NAME, ...) \
    template <class T, access A = access::sample, memory_coherence = memory_coherence_threadgroup> \
    struct NAME : anymetal::texture<T, A, __VA_ARGS__> { \
        enum { KIND = __VA_ARGS__ };

ANYMETAL_TEXTURE(texture1d, anymetal::D1)
    ANYMETAL_M(uint, get_width, (uint lod = 0), size, anymetal::size_of_level(ANYMETAL_E->width, lod))
    ANYMETAL_M(uint, get_num_mip_levels, (), size, 0)
    ANYMETAL_FENCE
    ANYMETAL_READ_WRITE(uint, (uint c), c, 0, 0, 0)
    ANYMETAL_ATOMICS((uint c), c, 0, 0, 0)
    ANYMETAL_SAMPLE_AT(anymetal::four<T>, sample, (sampler s, float c), , (float3{c, 0, 0}), int3(0), 0, 0)
};
ANYMETAL_TEXTURE(texture1d_array, anymetal::D1 | anymetal::ARRAY)
    ANYMETAL_M(uint, get_width, (uint lod = 0), size, anymetal::size_of_level(ANYMETAL_E->width, lod))
    ANYMETAL_M(uint, get_num_mip_levels, (), size, 0)
    ANYMETAL_LAYERS(ANYMETAL_E->count)
    ANYMETAL_FENCE
    ANYMETAL_READ_WRITE(uint, (uint c, uint a), c, 0, 0, a)
    ANYMETAL_ATOMICS((uint c, uint a), c, 0, 0, a)
    ANYMETAL_SAMPLE_AT(anymetal::four<T>, sample, (sampler s, float c, uint a), , (float3{c, 0, 0}), int3(0), a, 0)
};
template <class T, access A = access::read, memory_coherence = memory_coherence_threadgroup>
struct texture_buffer : anymetal::texture<T, A, anymetal::D1 | anymetal::BUFFER> {
    ANYMETAL_FENCE
    ANYMETAL_M(anymetal::four<T>, read, (uint c), read, anymetal::load<T>(ANYMETAL_E, c, 0, 0, 0, 0))
    ANYMETAL_M(void, write, (vec<T, 4> v, uint c), write, anymetal::store<T>(ANYMETAL_E, v, c, 0, 0, 0, 0))
    ANYMETAL_ATOMICS((uint c), c, 0, 0, 0)
};
ANYMETAL_TEXTURE(texture2d, anymetal::D2)
    ANYMETAL_HEIGHT ANYMETAL_FENCE
    ANYMETAL_READ_WRITE(uint, (uint2 c), c.x, c.y, 0, 0) ANYMETAL_READ_WRITE(ushort, (ushort2 c), c.x, c.y, 0, 0)
    ANYMETAL_ATOMICS((uint2 c), c.x, c.y, 0, 0) ANYMETAL_ATOMICS((ushort2 c), c.x, c.y, 0, 0)
    ANYMETAL_SAMPLES(anymetal::four<T>, sample, (float2 c), , (float3{c.x, c.y, 0}), (, int2 offset = int2(0)), (int3{offset.x, offset.y, 0}), 0, gradient2d)
    ANYMETAL_M(anymetal::four<T>, gather, (sampler s, float2 c, int2 offset = int2(0), component of = component::x), sample,
               anymetal::gathered<T, KIND>(ANYMETAL_E, s.anymetal_state, float3{c.x, c.y, 0}, int3{offset.x, offset.y, 0}, 0, int(of)))
};
ANYMETAL_TEXTURE(texture2d_array, anymetal::D2 | anymetal::ARRAY)
    ANYMETAL_HEIGHT ANYMETAL_FENCE ANYMETAL_LAYERS(ANYMETAL_E->count)
    ANYMETAL_READ_WRITE(uint, (uint2 c, uint a), c.x, c.y, 0, a) ANYMETAL_READ_WRITE(ushort, (ushort2 c, ushort a), c.x, c.y, 0, a)
    ANYMETAL_ATOMICS((uint2 c, uint a), c.x, c.y, 0, a) ANYMETAL_ATOMICS((ushort2 c, ushort a), c.x, c.y, 0, a)
    ANYMETAL_SAMPLES(anymetal::four<T>, sample, (float2 c, uint a), , (float3{c.x, c.y, 0}), (, int2 offset = int2(0)), (int3{offset.x, offset.y, 0}), a, gradient2d)
    ANYMETAL_M(anymetal::four<T>, gather, (sampler s, float2 c, uint a, int2 offset = int2(0), component of = component::x), sample,
               anymetal::gathered<T, KIND>(ANYMETAL_E, s.anymetal_state, float3{c.x, c.y, 0}, int3{offset.x, offset.y, 0}, a, int(of)))
};
ANYMETAL_TEXTURE(texture3d, anymetal::D3)
    ANYMETAL_HEIGHT ANYMETAL_FENCE
    ANYMETAL_M(uint, get_depth, (uint lod = 0), size, anymetal::size_of_level(ANYMETAL_E->depth, lod))
    ANYMETAL_READ_WRITE(uint, (uint3 c), c.x, c.y, c.z, 0) ANYMETAL_READ_WRITE(ushort, (ushort3 c), c.x, c.y, c.z, 0)
    ANYMETAL_ATOMICS((uint3 c), c.x, c.y, c.z, 0) ANYMETAL_ATOMICS((ushort3 c), c.x, c.y, c.z, 0)
    ANYMETAL_SAMPLES(anymetal::four<T>, sample, (float3 c), , (c), (, int3 offset = int3(0)), (offset), 0, gradient3d)
};
ANYMETAL_TEXTURE(texturecube, anymetal::CUBE)
    ANYMETAL_HEIGHT ANYMETAL_FENCE
    ANYMETAL_READ_WRITE(uint, (uint2 c, uint f), c.x, c.y, 0, f) ANYMETAL_READ_WRITE(ushort, (ushort2 c, ushort f), c.x, c.y, 0, f)
    ANYMETAL_SAMPLES(anymetal::four<T>, sample, (float3 c), , (c), (), (int3(0)), 0, gradientcube)
    ANYMETAL_M(anymetal::four<T>, gather, (sampler s, float3 c, component of = component::x), sample,
               anymetal::gathered<T, KIND>(ANYMETAL_E, s.anymetal_state, c, int3(0), 0, int(of)))
};
ANYMETAL_TEXTURE(texturecube_array, anymetal::CUBE | anymetal::ARRAY)
    ANYMETAL_HEIGHT ANYMETAL_FENCE ANYMETAL_LAYERS(ANYMETAL_E->count / 6)
    ANYMETAL_READ_WRITE(uint, (uint2 c, uint f, uint a), c.x, c.y, 0, anymetal::face_slice(f, a))
    ANYMETAL_READ_WRITE(ushort, (ushort2 c, ushort f, ushort a), c.x, c.y, 0, anymetal::face_slice(f, a))
    ANYMETAL_SAMPLES(anymetal::four<T>, sample, (float3 c, uint a), , (c), (), (int3(0)), a, gradientcube)
    ANYMETAL_M(anymetal::four<T>, gather, (sampler s, float3 c, uint a, component of = component::x), sample,
               anymetal::gathered<T, KIND>(ANYMETAL_E, s.anymetal_state, c, int3(0), a, int(of)))
};
template <class T, access A = access::read, memory_coherence = memory_coherence_threadgroup>
struct texture2d_ms : anymetal::texture<T, A, anymetal::D2 | anymetal::SAMPLES> {
    ANYMETAL_HEIGHT
    ANYMETAL_M(uint, get_num_samples, (), size, ANYMETAL_E->samples)
    ANYMETAL_M(anymetal::four<T>, read, (uint2 c, uint n), read, anymetal::load<T>(ANYMETAL_E, c.x, c.y, 0, n, 0))
    ANYMETAL_M(anymetal::four<T>, read, (ushort2 c, ushort n), read, anymetal::load<T>(ANYMETAL_E, c.x, c.y, 0, n, 0))
};
template <class T, access A = access::read, memory_coherence = memory_coherence_threadgroup>
struct texture2d_ms_array : anymetal::texture<T, A, anymetal::D2 | anymetal::SAMPLES | anymetal::ARRAY> {
    ANYMETAL_HEIGHT ANYMETAL_LAYERS(ANYMETAL_E->count / ANYMETAL_E->samples)
    ANYMETAL_M(uint, get_num_samples, (), size, ANYMETAL_E->samples)
    ANYMETAL_M(anymetal::four<T>, read, (uint2 c, uint a, uint n), read, anymetal::load<T>(ANYMETAL_E, c.x, c.y, 0, anymetal::sample_slice(ANYMETAL_E, a, n), 0))
    ANYMETAL_M(anymetal::four<T>, read, (ushort2 c, ushort a, ushort n), read, anymetal::load<T>(ANYMETAL_E, c.x, c.y, 0, anymetal::sample_slice(ANYMETAL_E, a, n), 0))
};

// Depth textures have one component.
#define ANYMETAL_COMPARES(COORDINATES, PLACE, OF, OFFSET, SLICE) \
    ANYMETAL_SAMPLE_AT(T, sample_compare, (sampler s, ANYMETAL_P COORDINATES, float compare_value ANYMETAL_P OF), .x, PLACE, OFFSET, SLICE, 0, true) \
    ANYMETAL_SAMPLE_AT(T, sample_compare, (sampler s, ANYMETAL_P COORDINATES, float compare_value, level l ANYMETAL_P OF), .x, PLACE, OFFSET, SLICE, \
                       anymetal::lod_of(ANYMETAL_E, l), true)
#define ANYMETAL_GATHERS(COORDINATES, PLACE, OF, OFFSET, SLICE) \
    ANYMETAL_M(anymetal::four<T>, gather, (sampler s, ANYMETAL_P COORDINATES ANYMETAL_P OF), sample, \
               anymetal::gathered<T, KIND>(ANYMETAL_E, s.anymetal_state, PLACE, OFFSET, SLICE, 0)) \
    ANYMETAL_M(anymetal::four<T>, gather_compare, (sampler s, ANYMETAL_P COORDINATES, float compare_value ANYMETAL_P OF), sample, \
               anymetal::gathered<T, KIND, true>(ANYMETAL_E, s.anymetal_state, PLACE, OFFSET, SLICE, 0, compare_value))
#define ANYMETAL_DEPTHS(COORDINATES, PLACE, OF, OFFSET, SLICE, GRADIENT) \
    ANYMETAL_SAMPLES(T, sample, COORDINATES, .x, PLACE, OF, OFFSET, SLICE, GRADIENT) \
    ANYMETAL_COMPARES(COORDINATES, PLACE, OF, OFFSET, SLICE) ANYMETAL_GATHERS(COORDINATES, PLACE, OF, OFFSET, SLICE)
ANYMETAL_TEXTURE(depth2d, anymetal::D2 | anymetal::DEPTH)
    ANYMETAL_HEIGHT
    ANYMETAL_READ(T, uint, (uint2 c), .x, c.x, c.y, 0, 0) ANYMETAL_READ(T, ushort, (ushort2 c), .x, c.x, c.y, 0, 0)
    ANYMETAL_DEPTHS((float2 c), (float3{c.x, c.y, 0}), (, int2 offset = int2(0)), (int3{offset.x, offset.y, 0}), 0, gradient2d)
};
ANYMETAL_TEXTURE(depth2d_array, anymetal::D2 | anymetal::DEPTH | anymetal::ARRAY)
    ANYMETAL_HEIGHT ANYMETAL_LAYERS(ANYMETAL_E->count)
    ANYMETAL_READ(T, uint, (uint2 c, uint a), .x, c.x, c.y, 0, a) ANYMETAL_READ(T, ushort, (ushort2 c, ushort a), .x, c.x, c.y, 0, a)
    ANYMETAL_DEPTHS((float2 c, uint a), (float3{c.x, c.y, 0}), (, int2 offset = int2(0)), (int3{offset.x, offset.y, 0}), a, gradient2d)
};
ANYMETAL_TEXTURE(depthcube, anymetal::CUBE | anymetal::DEPTH)
    ANYMETAL_HEIGHT
    ANYMETAL_READ(T, uint, (uint2 c, uint f), .x, c.x, c.y, 0, f) ANYMETAL_READ(T, ushort, (ushort2 c, ushort f), .x, c.x, c.y, 0, f)
    ANYMETAL_DEPTHS((float3 c), (c), (), (int3(0)), 0, gradientcube)
};
ANYMETAL_TEXTURE(depthcube_array, anymetal::CUBE | anymetal::DEPTH | anymetal::ARRAY)
    ANYMETAL_HEIGHT ANYMETAL_LAYERS(ANYMETAL_E->count / 6)
    ANYMETAL_READ(T, uint, (uint2 c, uint f, uint a), .x, c.x, c.y, 0, anymetal::face_slice(f, a))
    ANYMETAL_READ(T, ushort, (ushort2 c, ushort f, ushort a), .x, c.x, c.y, 0, anymetal::face_slice(f, a))
    ANYMETAL_DEPTHS((float3 c, uint a), (c), (), (int3(0)), a, gradientcube)
};
template <class T, access A = access::read, memory_coherence = memory_coherence_threadgroup>
struct depth2d_ms : anymetal::texture<T, A, anymetal::D2 | anymetal::SAMPLES | anymetal::DEPTH> {
    ANYMETAL_HEIGHT
    ANYMETAL_M(uint, get_num_samples, (), size, ANYMETAL_E->samples)
    ANYMETAL_M(T, read, (uint2 c, uint n), read, anymetal::load<T>(ANYMETAL_E, c.x, c.y, 0, n, 0).x)
    ANYMETAL_M(T, read, (ushort2 c, ushort n), read, anymetal::load<T>(ANYMETAL_E, c.x, c.y, 0, n, 0).x)
};
template <class T, access A = access::read, memory_coherence = memory_coherence_threadgroup>
struct depth2d_ms_array : anymetal::texture<T, A, anymetal::D2 | anymetal::SAMPLES | anymetal::DEPTH | anymetal::ARRAY> {
    ANYMETAL_HEIGHT ANYMETAL_LAYERS(ANYMETAL_E->count / ANYMETAL_E->samples)
    ANYMETAL_M(uint, get_num_samples, (), size, ANYMETAL_E->samples)
    ANYMETAL_M(T, read, (uint2 c, uint a, uint n), read, anymetal::load<T>(ANYMETAL_E, c.x, c.y, 0, anymetal::sample_slice(ANYMETAL_E, a, n), 0).x)
};

template <class T, access A, int D> METAL_FUNC bool is_null_texture(anymetal::texture<T, A, D> t) {
#ifdef ANYMETAL_STRICT
    return false;
#else
    return !t.anymetal_entry->width;
#endif
}

// The textures or samplers of an array of any length: handles, which are copied from any address space.
template <class T> struct array_ref {
    T anymetal_elements[128];
    size_t anymetal_count;
    constexpr array_ref() : anymetal_elements(), anymetal_count(0) {}
    template <size_t N> constexpr array_ref(array<T, N> from) : anymetal_elements(), anymetal_count(N) {
        static_assert(N <= 128, "array_ref: an array of textures has at most 128");
        for (size_t i = 0; i < N; i++) anymetal_elements[i] = from[i];
    }
    constexpr size_t size() const { return anymetal_count; }
    constexpr size_t max_size() const { return anymetal_count; }
    constexpr bool empty() const { return anymetal_count == 0; }
    constexpr T operator[](size_t i) const { return anymetal_elements[i]; }
    constexpr T front() const { return anymetal_elements[0]; }
    constexpr T back() const { return anymetal_elements[anymetal_count - 1]; }
};

#undef ANYMETAL_M
#undef ANYMETAL_P
#undef ANYMETAL_E

} // namespace metal
