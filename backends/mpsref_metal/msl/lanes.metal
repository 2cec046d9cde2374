// A pixel for LANES neighbouring threads, which belong to one SIMD group: the packs of its channels in turn.

#ifndef SPECIALIZED
constant constexpr uint LANES = 32;  // a power of 2
#endif

// Whether all threads of a thread's SIMD group are past the last one that computes something. They may return.
bool is_surplus(uint id, uint count) {
    constexpr uint simd = 32;
    return id / simd * simd >= count;
}

// The sum of a value of all lanes, the same in each of them; every thread of the SIMD group takes part.
float sum_of_lanes(float value) {
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
