// Batch normalization: two reductions over all pixels of a batch, and two kernels with one thread per pack of a pixel.
//
// A reduction has two stages, each in a fixed order. First one thread adds up a chunk of the pixels of a pack of
// channels, then one threadgroup for each pack merges the chunks: each of its threads a few neighbouring ones, then all
// threads in a tree. Statistics are (n, mean, m2) at every level, so that nothing cancels where a
// mean is large, and m2 of a constant channel is exactly 0.

struct Batch {
    uint count;  // threads that compute something
    Divisor channels;
    uint pixels;      // of all images of this call
    uint in_a_chunk;  // pixels that one thread adds up
    uint chunks;
    uint before;  // pixels of earlier calls; for `gradient` the pixels of the sums, 0 with frozen statistics
    float epsilon;
};

constant constexpr uint group_size = 256;
constant constexpr uint READ = 4;

uint pixels_of(uint chunk, constant Batch& batch) {
    return min(batch.in_a_chunk, batch.pixels - chunk * batch.in_a_chunk);
}

// The first of the chunks that a thread of the second stage merges; they end before the first chunk of the next thread.
uint first_chunk(uint member, constant Batch& batch) {
    uint each = (batch.chunks + group_size - 1) / group_size;
    return min(member * each, batch.chunks);
}

// Mean and m2 of a chunk, which is read once: the moments of a few pixels at a time are merged.
kernel void statistics_of_chunks(device const Storage* x [[buffer(0)]],
                                 constant Batch& batch [[buffer(1)]],
                                 device Values* means [[buffer(2)]],
                                 device Values* m2s [[buffer(3)]],
                                 uint id [[thread_position_in_grid]]) {
    if (id >= batch.count) {
        return;
    }
    uint chunk = quotient(id, batch.channels);
    uint pixels = pixels_of(chunk, batch);
    Index start = Index(chunk) * (batch.in_a_chunk - 1) * batch.channels.value + id;
    Moments own = moments_of(x + start, batch.channels.value, pixels);
    means[id] = own.mean;
    m2s[id] = own.m2;
}

[[max_total_threads_per_threadgroup(256)]]
kernel void statistics(device const Values* means [[buffer(0)]],
                       device const Values* m2s [[buffer(1)]],
                       device const Values* mean_before [[buffer(2)]],
                       device const Values* m2_before [[buffer(3)]],
                       constant Batch& batch [[buffer(4)]],
                       device Values* mean [[buffer(5)]],
                       device Values* m2 [[buffer(6)]],
                       uint channel [[threadgroup_position_in_grid]],
                       uint member [[thread_position_in_threadgroup]]) {
    threadgroup float n_of[group_size];
    threadgroup Values mean_of[group_size];
    threadgroup Values m2_of[group_size];
    Moments own = {0, Values(0.0f), Values(0.0f)};
    for (uint chunk = first_chunk(member, batch); chunk < first_chunk(member + 1, batch); ++chunk) {
        uint at = chunk * batch.channels.value + channel;
        own = merged(own, {float(pixels_of(chunk, batch)), means[at], m2s[at]});
    }
    for (uint step = 1; step < min(group_size, batch.chunks); step *= 2) {
        // Elements that are read after the barrier are not written in later steps.
        if (member % step == 0) {
            n_of[member] = own.n;
            mean_of[member] = own.mean;
            m2_of[member] = own.m2;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (member % (2 * step) == 0) {
            own = merged(own, {n_of[member + step], mean_of[member + step], m2_of[member + step]});
        }
    }
    if (member == 0) {
        own = merged({float(batch.before), mean_before[channel], m2_before[channel]}, own);
        mean[channel] = own.mean;
        m2[channel] = own.m2;
    }
}

Values root_of(Values variance, constant Batch& batch) {
    return 1.0f / sqrt(variance + batch.epsilon);
}

// y = f(gamma * (x - mean) * r + beta)
kernel void forward(device const Storage* x [[buffer(0)]],
                    device const Values* mean [[buffer(1)]],
                    device const Values* variance [[buffer(2)]],
                    device const Values* gamma [[buffer(3)]],
                    device const Values* beta [[buffer(4)]],
                    device const float* neuron [[buffer(5)]],
                    constant Batch& batch [[buffer(6)]],
                    device Values* y [[buffer(7)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= batch.count) {
        return;
    }
    uint c = remainder(id, batch.channels);
    Values xhat = (Values(x[id]) - mean[c]) * root_of(variance[c], batch);
    y[id] = neuron_value(gamma[c] * xhat + beta[c], c, neuron);
}

// The sums of g' and of g' * xhat over a chunk; g' is g times the slope of the neuron. A thread reads READ pixels before
// it computes, so that enough of memory is on its way.
kernel void sums_of_chunks(device const Gradient* g [[buffer(0)]],
                           device const Storage* x [[buffer(1)]],
                           device const Values* mean [[buffer(2)]],
                           device const Values* variance [[buffer(3)]],
                           device const Values* gamma [[buffer(4)]],
                           device const Values* beta [[buffer(5)]],
                           device const float* neuron [[buffer(6)]],
                           constant Batch& batch [[buffer(7)]],
                           device Values* dbetas [[buffer(8)]],
                           device Values* dgammas [[buffer(9)]],
                           uint id [[thread_position_in_grid]]) {
    if (id >= batch.count) {
        return;
    }
    uint chunk = quotient(id, batch.channels);
    uint c = id - chunk * batch.channels.value;
    Index start = Index(chunk) * (batch.in_a_chunk - 1) * batch.channels.value + id;
    Values center = mean[c];
    Values root = root_of(variance[c], batch);
    Values scale = gamma[c];
    Values offset = beta[c];
    BlockedSum dbeta = empty_sum();
    BlockedSum dgamma = empty_sum();
    uint pixels = pixels_of(chunk, batch);
    for (uint first = 0; first < pixels; first += READ) {
        Values inputs[READ];
        Values gradients[READ];
#pragma clang loop unroll(full)
        for (uint k = 0; k < READ; ++k) {
            Index at = start + Index(min(first + k, pixels - 1)) * batch.channels.value;
            inputs[k] = Values(x[at]);
            gradients[k] = Values(g[at]);
        }
#pragma clang loop unroll(full)
        for (uint k = 0; k < READ; ++k) {
            if (first + k < pixels) {
                Values xhat = (inputs[k] - center) * root;
                Values upstream = gradients[k] * neuron_slope(scale * xhat + offset, c, neuron);
                dbeta.add(upstream);
                dgamma.add(upstream * xhat);
            }
        }
    }
    dbetas[id] = dbeta.value();
    dgammas[id] = dgamma.value();
}

// The sums of all chunks, and those of earlier calls.
[[max_total_threads_per_threadgroup(256)]]
kernel void sums(device const Values* dbetas [[buffer(0)]],
                 device const Values* dgammas [[buffer(1)]],
                 device const Values* dbeta_before [[buffer(2)]],
                 device const Values* dgamma_before [[buffer(3)]],
                 constant Batch& batch [[buffer(4)]],
                 device Values* dbeta [[buffer(5)]],
                 device Values* dgamma [[buffer(6)]],
                 uint channel [[threadgroup_position_in_grid]],
                 uint member [[thread_position_in_threadgroup]]) {
    threadgroup Values dbeta_of[group_size];
    threadgroup Values dgamma_of[group_size];
    Values first = Values(0.0f);
    Values second = Values(0.0f);
    for (uint chunk = first_chunk(member, batch); chunk < first_chunk(member + 1, batch); ++chunk) {
        uint at = chunk * batch.channels.value + channel;
        first += dbetas[at];
        second += dgammas[at];
    }
    for (uint step = 1; step < min(group_size, batch.chunks); step *= 2) {
        // Elements that are read after the barrier are not written in later steps.
        if (member % step == 0) {
            dbeta_of[member] = first;
            dgamma_of[member] = second;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (member % (2 * step) == 0) {
            first += dbeta_of[member + step];
            second += dgamma_of[member + step];
        }
    }
    if (member == 0) {
        dbeta[channel] = dbeta_before[channel] + first;
        dgamma[channel] = dgamma_before[channel] + second;
    }
}

// dx = gamma * r * (g' - dbeta / n - xhat * dgamma / n), and gamma * r * g' with frozen statistics. A thread computes
// the same pack of `in_a_chunk` pixels.
kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Storage* x [[buffer(1)]],
                     device const Values* mean [[buffer(2)]],
                     device const Values* variance [[buffer(3)]],
                     device const Values* gamma [[buffer(4)]],
                     device const Values* beta [[buffer(5)]],
                     device const Values* dbeta [[buffer(6)]],
                     device const Values* dgamma [[buffer(7)]],
                     device const float* neuron [[buffer(8)]],
                     constant Batch& batch [[buffer(9)]],
                     device Values* dx [[buffer(10)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= batch.count) {
        return;
    }
    uint chunk = quotient(id, batch.channels);
    uint c = id - chunk * batch.channels.value;
    Index start = Index(chunk) * (batch.in_a_chunk - 1) * batch.channels.value + id;
    Values center = mean[c];
    Values root = root_of(variance[c], batch);
    Values scale = gamma[c];
    Values offset = beta[c];
    float n = max(float(batch.before), 1.0f);
    Values first = dbeta[c] / n;
    Values second = dgamma[c] / n;
    uint pixels = pixels_of(chunk, batch);
    for (uint k = 0; k < pixels; ++k) {
        Index at = start + Index(k) * batch.channels.value;
        Values xhat = (Values(x[at]) - center) * root;
        Values dz = Values(g[at]) * neuron_slope(scale * xhat + offset, c, neuron);
        if (batch.before > 0) {
            dz = dz - first - xhat * second;
        }
        dx[at] = scale * root * dz;
    }
}
