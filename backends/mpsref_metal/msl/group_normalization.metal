// Instance and group normalization in several launches: the moments of chunks of each channel of each image, the merged
// moments of each group, and y of every pixel; for the gradient also sums over chunks of each channel, and over
// channels. Values of a group are stored for each of its channels, so that all pixels are computed alike.
// `held_groups.metal` computes the same for small groups in one launch.

struct Groups {
    uint count;        // threads
    Divisor pixels;    // of one image of the batch
    Divisor channels;  // packs
    Divisor chunks;    // of an image
    uint in_a_chunk;   // pixels of a chunk, which one thread adds up
    uint size;         // channels of a group
    float values;      // of a group
    float epsilon;
};

// The pixels of a chunk: where they begin, and how many they are.
struct Chunk {
    uint image;
    uint channel;
    Index start;
    uint pixels;
};

Chunk chunk_of(uint id, constant Groups& groups) {
    uint row = quotient(id, groups.channels);
    uint channel = id - row * groups.channels.value;
    uint image = quotient(row, groups.chunks);
    uint first = (row - image * groups.chunks.value) * groups.in_a_chunk;
    Index start = (Index(image) * groups.pixels.value + first) * groups.channels.value + channel;
    return {image, channel, start, min(groups.in_a_chunk, groups.pixels.value - first)};
}

// Mean and m2 of WIDTH channels of a chunk.
kernel void moments_of_chunks(device const Storage* x [[buffer(0)]],
                              constant Groups& groups [[buffer(1)]],
                              device Values* means [[buffer(2)]],
                              device Values* m2s [[buffer(3)]],
                              uint id [[thread_position_in_grid]]) {
    if (id >= groups.count) {
        return;
    }
    Chunk chunk = chunk_of(id, groups);
    Moments own = moments_of(x + chunk.start, groups.channels.value, chunk.pixels);
    means[id] = own.mean;
    m2s[id] = own.m2;
}

#ifdef THREADS  // threads of the threadgroup that merges the moments of a group; WIDTH is 1

// Mean and r = 1 / sqrt(variance + epsilon) of a group, stored for each channel. Each thread merges some moments, then
// all are merged in a tree, after which every thread that has moments has the result.
[[max_total_threads_per_threadgroup(THREADS)]]
kernel void statistics(device const float* means [[buffer(0)]],
                       device const float* m2s [[buffer(1)]],
                       constant Groups& groups [[buffer(2)]],
                       device float* mean [[buffer(3)]],
                       device float* r [[buffer(4)]],
                       uint group [[threadgroup_position_in_grid]],
                       uint member [[thread_position_in_threadgroup]]) {
    threadgroup float n_of[THREADS];
    threadgroup float mean_of[THREADS];
    threadgroup float m2_of[THREADS];
    uint in_an_image = groups.channels.value / groups.size;
    uint image = group / in_an_image;
    uint first = group % in_an_image * groups.size;
    uint count = groups.chunks.value * groups.size;
    Moments own = {0, 0.0f, 0.0f};
    for (uint k = member; k < count; k += THREADS) {
        uint chunk = k / groups.size;
        uint at = (image * groups.chunks.value + chunk) * groups.channels.value + first + k % groups.size;
        uint pixels = min(groups.in_a_chunk, groups.pixels.value - chunk * groups.in_a_chunk);
        own = merged(own, {float(pixels), means[at], m2s[at]});
    }
    for (uint step = 1; step < min(uint(THREADS), count); step *= 2) {
        n_of[member] = own.n;
        mean_of[member] = own.mean;
        m2_of[member] = own.m2;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        uint other = member ^ step;
        bool is_left = member < other;
        Moments theirs = {n_of[other], mean_of[other], m2_of[other]};
        own = is_left ? merged(own, theirs) : merged(theirs, own);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint channel = first + member; channel < first + groups.size; channel += THREADS) {
        mean[image * groups.channels.value + channel] = own.mean;
        r[image * groups.channels.value + channel] = 1.0f / sqrt(own.m2 / groups.values + groups.epsilon);
    }
}

// For each channel, the means of h = g * gamma and of h * xhat over its group.
[[max_total_threads_per_threadgroup(THREADS)]]
kernel void group_means(device const float* gamma [[buffer(0)]],
                        device const float* dgamma [[buffer(1)]],
                        device const float* dbeta [[buffer(2)]],
                        constant Groups& groups [[buffer(3)]],
                        device float* of_h [[buffer(4)]],
                        device float* of_product [[buffer(5)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint member [[thread_position_in_threadgroup]]) {
    threadgroup float2 of_members[THREADS];
    uint in_an_image = groups.channels.value / groups.size;
    uint first = group % in_an_image * groups.size;
    uint row = group / in_an_image * groups.channels.value;
    float2 own = float2(0.0f);
    for (uint channel = first + member; channel < first + groups.size; channel += THREADS) {
        own += gamma[channel] * float2(dbeta[row + channel], dgamma[row + channel]);
    }
    for (uint step = 1; step < min(uint(THREADS), groups.size); step *= 2) {
        of_members[member] = own;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        own += of_members[member ^ step];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint channel = first + member; channel < first + groups.size; channel += THREADS) {
        of_h[row + channel] = own.x / groups.values;
        of_product[row + channel] = own.y / groups.values;
    }
}

#endif

// The channel of a pixel's pack, and its index in arrays with a pack for each image and channel.
struct ChannelPlace {
    uint channel;
    uint at;
};

ChannelPlace channel_place(uint id, constant Groups& groups) {
    uint pixel = quotient(id, groups.channels);
    uint channel = id - pixel * groups.channels.value;
    return {channel, quotient(pixel, groups.pixels) * groups.channels.value + channel};
}

// y = gamma * xhat + beta
kernel void forward(device const Storage* x [[buffer(0)]],
                    device const Values* gamma [[buffer(1)]],
                    device const Values* beta [[buffer(2)]],
                    device const Values* mean [[buffer(3)]],
                    device const Values* r [[buffer(4)]],
                    constant Groups& groups [[buffer(5)]],
                    device Values* y [[buffer(6)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= groups.count) {
        return;
    }
    ChannelPlace place = channel_place(id, groups);
    y[id] = gamma[place.channel] * ((Values(x[id]) - mean[place.at]) * r[place.at]) + beta[place.channel];
}

// Mean and m2 of WIDTH channels of a chunk, and the sums of g * (x - first x of the chunk) and of g.
kernel void moments_and_sums_of_chunks(device const Gradient* g [[buffer(0)]],
                                       device const Storage* x [[buffer(1)]],
                                       constant Groups& groups [[buffer(2)]],
                                       device Values* means [[buffer(3)]],
                                       device Values* m2s [[buffer(4)]],
                                       device Values* products [[buffer(5)]],
                                       device Values* gradients [[buffer(6)]],
                                       uint id [[thread_position_in_grid]]) {
    if (id >= groups.count) {
        return;
    }
    Chunk chunk = chunk_of(id, groups);
    Values origin = Values(x[chunk.start]);
    Moments own = {0, Values(0.0f), Values(0.0f)};
    BlockedSum product = empty_sum();
    BlockedSum gradient = empty_sum();
    for (uint first = 0; first < chunk.pixels; first += TILE) {
        uint n = min(TILE, chunk.pixels - first);
        Values tile[TILE];
        Values upstream[TILE];
        for (uint k = 0; k < TILE; ++k) {
            Index at = chunk.start + Index(first + min(k, n - 1)) * groups.channels.value;
            tile[k] = Values(x[at]);
            upstream[k] = Values(g[at]);
        }
        for (uint k = 0; k < TILE; ++k) {
            Values term = k < n ? upstream[k] : Values(0.0f);
            product.add(term * (tile[k] - origin));
            gradient.add(term);
        }
        own = merged(own, moments_of_tile(tile, n));
    }
    means[id] = own.mean;
    m2s[id] = own.m2;
    products[id] = product.value();
    gradients[id] = gradient.value();
}

// dgamma and dbeta of each channel of each image, the sums of g * xhat and of g: those of its chunks, in their order.
kernel void channel_sums(device const Storage* x [[buffer(0)]],
                         device const Values* products [[buffer(1)]],
                         device const Values* gradients [[buffer(2)]],
                         device const Values* mean [[buffer(3)]],
                         device const Values* r [[buffer(4)]],
                         constant Groups& groups [[buffer(5)]],
                         device Values* dgamma [[buffer(6)]],
                         device Values* dbeta [[buffer(7)]],
                         uint id [[thread_position_in_grid]]) {
    if (id >= groups.count) {
        return;
    }
    uint image = quotient(id, groups.channels);
    uint first = image * (groups.chunks.value - 1) * groups.channels.value + id;
    Values center = mean[id];
    BlockedSum product = empty_sum();
    BlockedSum gradient = empty_sum();
    #pragma unroll(4)
    for (uint chunk = 0; chunk < groups.chunks.value; ++chunk) {
        uint at = first + chunk * groups.channels.value;
        Values origin = Values(x[chunk_of(at, groups).start]);
        product.add(products[at] + (origin - center) * gradients[at]);
        gradient.add(gradients[at]);
    }
    dgamma[id] = product.value() * r[id];
    dbeta[id] = gradient.value();
}

// dx = r * (h - mean(h) - xhat * mean(h * xhat)) with h = g * gamma; 0 for a group of one value.
kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Storage* x [[buffer(1)]],
                     device const Values* gamma [[buffer(2)]],
                     device const Values* mean [[buffer(3)]],
                     device const Values* r [[buffer(4)]],
                     device const Values* of_h [[buffer(5)]],
                     device const Values* of_product [[buffer(6)]],
                     constant Groups& groups [[buffer(7)]],
                     device Values* dx [[buffer(8)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= groups.count) {
        return;
    }
    ChannelPlace place = channel_place(id, groups);
    Values h = Values(g[id]) * gamma[place.channel];
    Values xhat = (Values(x[id]) - mean[place.at]) * r[place.at];
    Values value = r[place.at] * (h - of_h[place.at] - xhat * of_product[place.at]);
    dx[id] = groups.values == 1 ? Values(0.0f) : value;
}
