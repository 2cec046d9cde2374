// Instance and group normalization. Three steps that a GPU does one after the other: statistics of each group, sums of
// each channel (gradient only), then every pixel. The first two have a threadgroup for each sum, whose threads take the
// values in turn; `THREADS`, a multiple of 32, is put in front.

#ifndef SPECIALIZED
#define THREADS 32
#endif

struct Groups {
    uint elements;  // of the image
    uint pixels;    // of one image of the batch
    uint channels;
    uint groups;
    uint size;   // channels of a group
    uint count;  // values of a group
    float epsilon;
};

// The sum of the values of all threads of a group, the same in each of them.
float sum_of_all(float value, threadgroup float* parts, uint member) {
    float part = simd_sum(value);
    if (member % 32 == 0) {
        parts[member / 32] = part;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float total = 0;
    for (uint k = 0; k < THREADS / 32; ++k) {
        total += parts[k];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return total;
}

ulong index_in_group(uint group, uint value, constant Groups& groups) {
    ulong first = ulong(group / groups.groups) * groups.pixels * groups.channels + group % groups.groups * groups.size;
    return first + ulong(value / groups.size) * groups.channels + value % groups.size;
}

// Mean and r = 1 / sqrt(variance + epsilon), from values relative to the first: a constant group has none but zeros.
[[max_total_threads_per_threadgroup(THREADS)]]
kernel void statistics(device const Storage* x [[buffer(0)]],
                       constant Groups& groups [[buffer(1)]],
                       device float* mean [[buffer(2)]],
                       device float* r [[buffer(3)]],
                       uint group [[threadgroup_position_in_grid]],
                       uint member [[thread_position_in_threadgroup]]) {
    threadgroup float parts[THREADS / 32];
    float first = float(x[index_in_group(group, 0, groups)]);
    BlockedSum distances = {0, 0, 0};
    for (uint value = member; value < groups.count; value += THREADS) {
        distances.add(float(x[index_in_group(group, value, groups)]) - first);
    }
    float away = sum_of_all(distances.value(), parts, member) / float(groups.count);
    BlockedSum squares = {0, 0, 0};
    BlockedSum rest = {0, 0, 0};  // what rounding left of a sum that is 0
    for (uint value = member; value < groups.count; value += THREADS) {
        float distance = float(x[index_in_group(group, value, groups)]) - first - away;
        squares.add(distance * distance);
        rest.add(distance);
    }
    float square = sum_of_all(squares.value(), parts, member);
    float remainder = sum_of_all(rest.value(), parts, member);
    if (member == 0) {
        float variance = max(square - remainder * remainder / float(groups.count), 0.0f) / float(groups.count);
        mean[group] = first + away;
        r[group] = 1 / sqrt(variance + groups.epsilon);
    }
}

uint group_of(uint id, constant Groups& groups) {
    return id / groups.channels / groups.pixels * groups.groups + id % groups.channels / groups.size;
}

// y = gamma * xhat + beta
kernel void forward(device const Storage* x [[buffer(0)]],
                    device const float* gamma [[buffer(1)]],
                    device const float* beta [[buffer(2)]],
                    device const float* mean [[buffer(3)]],
                    device const float* r [[buffer(4)]],
                    constant Groups& groups [[buffer(5)]],
                    device float* y [[buffer(6)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= groups.elements) {
        return;
    }
    uint group = group_of(id, groups);
    uint channel = id % groups.channels;
    y[id] = gamma[channel] * ((float(x[id]) - mean[group]) * r[group]) + beta[channel];
}

// Of each channel of each image: dgamma, the sum of g * xhat, and dbeta, the sum of g.
[[max_total_threads_per_threadgroup(THREADS)]]
kernel void channel_sums(device const Gradient* g [[buffer(0)]],
                         device const Storage* x [[buffer(1)]],
                         device const float* mean [[buffer(2)]],
                         device const float* r [[buffer(3)]],
                         constant Groups& groups [[buffer(4)]],
                         device float* dgamma [[buffer(5)]],
                         device float* dbeta [[buffer(6)]],
                         uint sum [[threadgroup_position_in_grid]],
                         uint member [[thread_position_in_threadgroup]]) {
    threadgroup float parts[THREADS / 32];
    uint image = sum / groups.channels;
    uint channel = sum % groups.channels;
    uint group = image * groups.groups + channel / groups.size;
    BlockedSum products = {0, 0, 0};
    BlockedSum gradients = {0, 0, 0};
    for (uint pixel = member; pixel < groups.pixels; pixel += THREADS) {
        ulong at = (ulong(image) * groups.pixels + pixel) * groups.channels + channel;
        float upstream = float(g[at]);
        products.add(upstream * ((float(x[at]) - mean[group]) * r[group]));
        gradients.add(upstream);
    }
    float product = sum_of_all(products.value(), parts, member);
    float gradient = sum_of_all(gradients.value(), parts, member);
    if (member == 0) {
        dgamma[sum] = product;
        dbeta[sum] = gradient;
    }
}

// Of each group: the means of h = g * gamma and of h * xhat.
kernel void group_means(device const float* gamma [[buffer(0)]],
                        device const float* dgamma [[buffer(1)]],
                        device const float* dbeta [[buffer(2)]],
                        constant Groups& groups [[buffer(3)]],
                        device float* of_h [[buffer(4)]],
                        device float* of_product [[buffer(5)]],
                        uint group [[thread_position_in_grid]]) {
    if (group >= groups.elements / groups.count) {
        return;
    }
    uint first = group % groups.groups * groups.size;
    uint row = group / groups.groups * groups.channels;
    BlockedSum h = {0, 0, 0};
    BlockedSum products = {0, 0, 0};
    for (uint channel = first; channel < first + groups.size; ++channel) {
        h.add(gamma[channel] * dbeta[row + channel]);
        products.add(gamma[channel] * dgamma[row + channel]);
    }
    of_h[group] = h.value() / float(groups.count);
    of_product[group] = products.value() / float(groups.count);
}

// dx = r * (h - mean of h - xhat * mean of h * xhat); 0 where there is only one value
kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Storage* x [[buffer(1)]],
                     device const float* gamma [[buffer(2)]],
                     device const float* mean [[buffer(3)]],
                     device const float* r [[buffer(4)]],
                     device const float* of_h [[buffer(5)]],
                     device const float* of_product [[buffer(6)]],
                     constant Groups& groups [[buffer(7)]],
                     device float* dx [[buffer(8)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= groups.elements) {
        return;
    }
    uint group = group_of(id, groups);
    float h = float(g[id]) * gamma[id % groups.channels];
    float xhat = (float(x[id]) - mean[group]) * r[group];
    dx[id] = groups.count == 1 ? 0.0f : r[group] * (h - of_h[group] - xhat * of_product[group]);
}
