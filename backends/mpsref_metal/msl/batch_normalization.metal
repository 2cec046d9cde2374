// Batch normalization: two reductions over all pixels of a batch, two kernels with one thread an element.
//
// A reduction has two stages, and in both the order is fixed. First one thread adds up a part of the pixels of one
// channel, then one threadgroup a channel joins the parts: each of its threads a few neighbours, then all of them in a
// tree. Statistics are (n, mean, m2) at every level, so nothing cancels where a mean is large, and a channel that is
// constant keeps m2 = 0 exactly.

struct Batch {
    uint count;  // threads that have something to do
    uint channels;
    uint pixels;     // of all images of this call
    uint in_a_part;  // pixels that one thread adds up
    uint parts;
    uint before;  // pixels of earlier calls; for `gradient`, over which the sums are, 0 with frozen statistics
    float epsilon;
};

constant uint group_size = 64;

struct Moments {
    float n;
    float mean;
    float m2;
};

// b and n are never multiplied as integers, which could overflow.
Moments merged(Moments a, Moments b) {
    if (a.n == 0 || b.n == 0) {
        return a.n == 0 ? b : a;
    }
    float share = b.n / (a.n + b.n);
    float delta = b.mean - a.mean;
    return {a.n + b.n, a.mean + delta * share, a.m2 + b.m2 + delta * delta * (a.n * share)};
}

uint pixels_of(uint part, constant Batch& batch) {
    return min(batch.in_a_part, batch.pixels - part * batch.in_a_part);
}

// Where the parts begin that a member of the second stage's threadgroup joins; they end where the next one's begin.
uint first_part(uint member, constant Batch& batch) {
    uint each = (batch.parts + group_size - 1) / group_size;
    return min(member * each, batch.parts);
}

// mean and m2 of a part, from distances to its first pixel and then from those to the mean
kernel void statistics_of_parts(device const Storage* x [[buffer(0)]],
                                constant Batch& batch [[buffer(1)]],
                                device float* means [[buffer(2)]],
                                device float* m2s [[buffer(3)]],
                                uint id [[thread_position_in_grid]]) {
    if (id >= batch.count) {
        return;
    }
    uint part = id / batch.channels;
    uint n = pixels_of(part, batch);
    ulong start = ulong(part) * batch.in_a_part * batch.channels + id % batch.channels;
    float shift = float(x[start]);
    BlockedSum sum = {0, 0, 0};
    for (uint k = 0; k < n; ++k) {
        sum.add(float(x[start + ulong(k) * batch.channels]) - shift);
    }
    float distance = sum.value() / float(n);
    BlockedSum squares = {0, 0, 0};
    BlockedSum rest = {0, 0, 0};
    for (uint k = 0; k < n; ++k) {
        float d = (float(x[start + ulong(k) * batch.channels]) - shift) - distance;
        squares.add(d * d);
        rest.add(d);
    }
    means[id] = shift + distance;
    m2s[id] = max(squares.value() - rest.value() * rest.value() / float(n), 0.0f);  // the rest only removes rounding
}

[[max_total_threads_per_threadgroup(64)]]
kernel void statistics(device const float* means [[buffer(0)]],
                       device const float* m2s [[buffer(1)]],
                       device const float* mean_before [[buffer(2)]],
                       device const float* m2_before [[buffer(3)]],
                       constant Batch& batch [[buffer(4)]],
                       device float* mean [[buffer(5)]],
                       device float* m2 [[buffer(6)]],
                       uint channel [[threadgroup_position_in_grid]],
                       uint member [[thread_position_in_threadgroup]]) {
    threadgroup float n_of[group_size];
    threadgroup float mean_of[group_size];
    threadgroup float m2_of[group_size];
    Moments own = {0, 0, 0};
    for (uint part = first_part(member, batch); part < first_part(member + 1, batch); ++part) {
        uint at = part * batch.channels + channel;
        own = merged(own, {float(pixels_of(part, batch)), means[at], m2s[at]});
    }
    for (uint step = 1; step < group_size; step *= 2) {
        n_of[member] = own.n;
        mean_of[member] = own.mean;
        m2_of[member] = own.m2;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (member % (2 * step) == 0) {
            own = merged(own, {n_of[member + step], mean_of[member + step], m2_of[member + step]});
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (member == 0) {
        own = merged({float(batch.before), mean_before[channel], m2_before[channel]}, own);
        mean[channel] = own.mean;
        m2[channel] = own.m2;
    }
}

float root_of(float variance, constant Batch& batch) {
    return 1.0f / sqrt(variance + batch.epsilon);
}

// y = f(gamma * (x - mean) * r + beta)
kernel void forward(device const Storage* x [[buffer(0)]],
                    device const float* mean [[buffer(1)]],
                    device const float* variance [[buffer(2)]],
                    device const float* gamma [[buffer(3)]],
                    device const float* beta [[buffer(4)]],
                    device const float* neuron [[buffer(5)]],
                    constant Batch& batch [[buffer(6)]],
                    device float* y [[buffer(7)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= batch.count) {
        return;
    }
    uint c = id % batch.channels;
    float xhat = (float(x[id]) - mean[c]) * root_of(variance[c], batch);
    y[id] = neuron_value(gamma[c] * xhat + beta[c], c, neuron);
}

// the sums of g' and of g' * xhat over a part
kernel void sums_of_parts(device const Gradient* g [[buffer(0)]],
                          device const Storage* x [[buffer(1)]],
                          device const float* mean [[buffer(2)]],
                          device const float* variance [[buffer(3)]],
                          device const float* gamma [[buffer(4)]],
                          device const float* beta [[buffer(5)]],
                          device const float* neuron [[buffer(6)]],
                          constant Batch& batch [[buffer(7)]],
                          device float* dbetas [[buffer(8)]],
                          device float* dgammas [[buffer(9)]],
                          uint id [[thread_position_in_grid]]) {
    if (id >= batch.count) {
        return;
    }
    uint part = id / batch.channels;
    uint c = id % batch.channels;
    ulong start = ulong(part) * batch.in_a_part * batch.channels + c;
    float root = root_of(variance[c], batch);
    BlockedSum dbeta = {0, 0, 0};
    BlockedSum dgamma = {0, 0, 0};
    for (uint k = 0; k < pixels_of(part, batch); ++k) {
        ulong at = start + ulong(k) * batch.channels;
        float xhat = (float(x[at]) - mean[c]) * root;
        float upstream = float(g[at]) * neuron_slope(gamma[c] * xhat + beta[c], c, neuron);
        dbeta.add(upstream);
        dgamma.add(upstream * xhat);
    }
    dbetas[id] = dbeta.value();
    dgammas[id] = dgamma.value();
}

[[max_total_threads_per_threadgroup(64)]]
kernel void statistics_gradient(device const float* dbetas [[buffer(0)]],
                                device const float* dgammas [[buffer(1)]],
                                device const float* dbeta_before [[buffer(2)]],
                                device const float* dgamma_before [[buffer(3)]],
                                constant Batch& batch [[buffer(4)]],
                                device float* dbeta [[buffer(5)]],
                                device float* dgamma [[buffer(6)]],
                                uint channel [[threadgroup_position_in_grid]],
                                uint member [[thread_position_in_threadgroup]]) {
    threadgroup float first_of[group_size];
    threadgroup float second_of[group_size];
    float first = 0;
    float second = 0;
    for (uint part = first_part(member, batch); part < first_part(member + 1, batch); ++part) {
        first += dbetas[part * batch.channels + channel];
        second += dgammas[part * batch.channels + channel];
    }
    for (uint step = 1; step < group_size; step *= 2) {
        first_of[member] = first;
        second_of[member] = second;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (member % (2 * step) == 0) {
            first += first_of[member + step];
            second += second_of[member + step];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (member == 0) {
        dbeta[channel] = dbeta_before[channel] + first;
        dgamma[channel] = dgamma_before[channel] + second;
    }
}

// dx = gamma * r * (g' - dbeta / n - xhat * dgamma / n), and gamma * r * g' with frozen statistics
kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Storage* x [[buffer(1)]],
                     device const float* mean [[buffer(2)]],
                     device const float* variance [[buffer(3)]],
                     device const float* gamma [[buffer(4)]],
                     device const float* beta [[buffer(5)]],
                     device const float* dbeta [[buffer(6)]],
                     device const float* dgamma [[buffer(7)]],
                     device const float* neuron [[buffer(8)]],
                     constant Batch& batch [[buffer(9)]],
                     device float* dx [[buffer(10)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= batch.count) {
        return;
    }
    uint c = id % batch.channels;
    float root = root_of(variance[c], batch);
    float xhat = (float(x[id]) - mean[c]) * root;
    float dz = float(g[id]) * neuron_slope(gamma[c] * xhat + beta[c], c, neuron);
    if (batch.before > 0) {
        float n = float(batch.before);
        dz = dz - dbeta[c] / n - xhat * (dgamma[c] / n);
    }
    dx[id] = gamma[c] * root * dz;
}
