// LANES neighbouring threads of one SIMD group share a pixel, and take the packs of its channels in turn.

#ifndef SPECIALIZED
constant constexpr uint LANES = 32;  // a power of 2
#endif

// Whether no thread of the SIMD group of thread `id` has anything to compute. Then all of them return.
bool is_surplus(uint id, uint count) {
    constexpr uint simd = 32;
    return id / simd * simd >= count;
}

// The sum of a value over all lanes, returned in each of them. Every thread of the SIMD group must call it.
template <typename T>
T sum_of_lanes(T value) {
    for (uint step = 1; step < LANES; step *= 2) {
        value += simd_shuffle_xor(value, ushort(step));
    }
    return value;
}

float largest_of_lanes(float value) {
    for (uint step = 1; step < LANES; step *= 2) {
        value = max(value, simd_shuffle_xor(value, ushort(step)));
    }
    return value;
}
