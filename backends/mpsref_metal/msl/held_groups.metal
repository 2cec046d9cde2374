// Instance and group normalization in one launch, for groups that the threads of a threadgroup can keep in registers:
// images are read once. `group_normalization.metal` computes the same for groups of every size.
//
// A threadgroup has a slab of an image: `columns` neighbouring packs of all pixels, which are whole groups. The numbers
// of columns and of packs of a group are powers of 2, at most 16. A thread has the packs of its column in the pixels
// row, row + rows, ...: at most HELD.

#ifndef SPECIALIZED
#define THREADS 256
constant constexpr uint HELD = 8;
#endif

constant constexpr uint MOST_COLUMNS = 16;
constant constexpr uint SIMD = 32;

struct Slabs {
    uint pixels;
    uint channels;  // packs
    uint slabs;     // of an image
    uint columns;
    uint size;     // packs of a group; 0 if each channel is a group
    float values;  // of a group
    float epsilon;
};

// Where the packs of a thread are.
struct SlabPlace {
    uint row;
    uint rows;
    uint column;
    uint channel;
    uint at;      // index in arrays with a pack for each image and channel
    Index start;  // index of the channel in pixel 0 of the image
    uint member;  // thread in the threadgroup
};

SlabPlace slab_place(uint slab, uint member, constant Slabs& slabs) {
    uint image = slab / slabs.slabs;
    uint column = member % slabs.columns;
    uint channel = (slab - image * slabs.slabs) * slabs.columns + column;
    Index start = Index(image) * slabs.pixels * slabs.channels + channel;
    uint rows = THREADS / slabs.columns;
    return {member / slabs.columns, rows, column, channel, image * slabs.channels + channel, start, member};
}

// The sum of a value over the lanes whose numbers differ only in the bits from `first` to below `end`.
template <typename T>
T sum_of_bits(T value, uint first, uint end) {
    for (uint step = first; step < end; step *= 2) {
        value += simd_shuffle_xor(value, ushort(step));
    }
    return value;
}

// The sum of a value over the rows of each column. Successive sums use two memories in turn: the barrier of a sum
// separates the reads of the sum before it from the writes of the sum after it.
template <typename T>
T column_sum(T value, threadgroup T* memory, SlabPlace place, constant Slabs& slabs) {
    value = sum_of_bits(value, slabs.columns, SIMD);
    uint lane = place.member % SIMD;
    if (lane < slabs.columns) {
        memory[place.member / SIMD * slabs.columns + lane] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    T sum = T(0.0f);
    #pragma unroll
    for (uint k = 0; k < THREADS / SIMD; ++k) {
        sum += memory[k * slabs.columns + place.column];
    }
    return sum;
}

// Threadgroup memory for two sums: of packs, and of numbers for each group.
struct Memory {
    threadgroup Values* first;
    threadgroup Values* second;
    threadgroup float* first_of_groups;
    threadgroup float* second_of_groups;
};

Values group_sum(Values value, threadgroup Values* memory, threadgroup float* of_groups, SlabPlace place,
                 constant Slabs& slabs) {
    if (slabs.size == 0) {
        return column_sum(value, memory, place, slabs);
    }
    return Values(column_sum(sum_of_bits(sum_of(value), 1, slabs.size), of_groups, place, slabs));
}

// The packs that a thread keeps in registers; those past the last pixel repeat it.
struct Held {
    Values of[HELD];
};

template <typename T>
Held fetch(device const T* x, SlabPlace place, constant Slabs& slabs) {
    Held held;
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        uint pixel = min(place.row + slot * place.rows, slabs.pixels - 1);
        held.of[slot] = Values(x[place.start + Index(pixel) * slabs.channels]);
    }
    return held;
}

bool has(uint slot, SlabPlace place, constant Slabs& slabs) {
    return place.row + slot * place.rows < slabs.pixels;
}

float first_of(float v) {
    return v;
}

float first_of(float4 v) {
    return v.x;
}

// Subtract the mean of the group, and return r = 1 / sqrt(variance + epsilon). The mean is computed relative to the
// first value of the group, so that a constant group becomes exactly 0.
Values center(thread Held& held, device const Storage* x, Memory memory, SlabPlace place, constant Slabs& slabs) {
    Values origin = Values(x[place.start - (slabs.size == 0 ? 0 : place.column % slabs.size)]);
    if (slabs.size > 0) {
        origin = Values(first_of(origin));
    }
    Values sum = Values(0.0f);
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        held.of[slot] -= origin;
        sum += has(slot, place, slabs) ? held.of[slot] : Values(0.0f);
    }
    Values mean = group_sum(sum, memory.first, memory.first_of_groups, place, slabs) / slabs.values;
    Values squares = Values(0.0f);
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        held.of[slot] -= mean;
        squares += has(slot, place, slabs) ? held.of[slot] * held.of[slot] : Values(0.0f);
    }
    Values variance = group_sum(squares, memory.second, memory.second_of_groups, place, slabs) / slabs.values;
    return 1.0f / sqrt(variance + slabs.epsilon);
}

// y = gamma * xhat + beta
[[max_total_threads_per_threadgroup(THREADS)]]
kernel void held_forward(device const Storage* x [[buffer(0)]],
                         device const Values* gamma [[buffer(1)]],
                         device const Values* beta [[buffer(2)]],
                         constant Slabs& slabs [[buffer(3)]],
                         device Values* y [[buffer(4)]],
                         uint slab [[threadgroup_position_in_grid]],
                         uint member [[thread_position_in_threadgroup]]) {
    threadgroup Values first[THREADS / SIMD * MOST_COLUMNS];
    threadgroup Values second[THREADS / SIMD * MOST_COLUMNS];
    threadgroup float first_of_groups[THREADS / SIMD * MOST_COLUMNS];
    threadgroup float second_of_groups[THREADS / SIMD * MOST_COLUMNS];
    SlabPlace place = slab_place(slab, member, slabs);
    Held held = fetch(x, place, slabs);
    Values r = center(held, x, {first, second, first_of_groups, second_of_groups}, place, slabs);
    Values scale = gamma[place.channel];
    Values offset = beta[place.channel];
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        if (has(slot, place, slabs)) {
            Index at = place.start + Index(place.row + slot * place.rows) * slabs.channels;
            y[at] = scale * (held.of[slot] * r) + offset;
        }
    }
}

// The mean over each group of gamma times the sums of its channels.
Values mean_of(Values sums, Values gamma, constant Slabs& slabs) {
    Values of_h = gamma * sums;
    return (slabs.size == 0 ? of_h : Values(sum_of_bits(sum_of(of_h), 1, slabs.size))) / slabs.values;
}

// dgamma = sum of g * xhat, dbeta = sum of g, and dx = r * (h - mean(h) - xhat * mean(h * xhat)) with h = g * gamma; dx
// is 0 for a group of one value.
[[max_total_threads_per_threadgroup(THREADS)]]
kernel void held_gradient(device const Gradient* g [[buffer(0)]],
                          device const Storage* x [[buffer(1)]],
                          device const Values* gamma [[buffer(2)]],
                          constant Slabs& slabs [[buffer(3)]],
                          device Values* dx [[buffer(4)]],
                          device Values* dgamma [[buffer(5)]],
                          device Values* dbeta [[buffer(6)]],
                          uint slab [[threadgroup_position_in_grid]],
                          uint member [[thread_position_in_threadgroup]]) {
    threadgroup Values first[THREADS / SIMD * MOST_COLUMNS];
    threadgroup Values second[THREADS / SIMD * MOST_COLUMNS];
    threadgroup float first_of_groups[THREADS / SIMD * MOST_COLUMNS];
    threadgroup float second_of_groups[THREADS / SIMD * MOST_COLUMNS];
    SlabPlace place = slab_place(slab, member, slabs);
    Held xhat = fetch(x, place, slabs);
    Held upstream = fetch(g, place, slabs);
    Values scale = gamma[place.channel];
    Values r = center(xhat, x, {first, second, first_of_groups, second_of_groups}, place, slabs);
    Values products = Values(0.0f);
    Values gradients = Values(0.0f);
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        Values own_g = has(slot, place, slabs) ? upstream.of[slot] : Values(0.0f);
        xhat.of[slot] *= r;
        products += own_g * xhat.of[slot];
        gradients += own_g;
    }
    products = column_sum(products, first, place, slabs);
    gradients = column_sum(gradients, second, place, slabs);
    if (place.row == 0) {
        dgamma[place.at] = products;
        dbeta[place.at] = gradients;
    }
    Values of_product = mean_of(products, scale, slabs);
    Values of_h = mean_of(gradients, scale, slabs);
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        if (has(slot, place, slabs)) {
            Index at = place.start + Index(place.row + slot * place.rows) * slabs.channels;
            Values value = r * (upstream.of[slot] * scale - of_h - xhat.of[slot] * of_product);
            dx[at] = slabs.values == 1 ? Values(0.0f) : value;
        }
    }
}
