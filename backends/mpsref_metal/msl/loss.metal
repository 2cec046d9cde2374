// Losses and their derivatives, element by element or, for softmax, pixel by pixel. LANES threads share a run of
// elements of an image, for softmax the channels of a pixel, and take packs of 4 elements in turn.
//
// The loss type and what is wanted of it are the same for all threads, so each switch goes one way in all of them. A
// product with a factor t or 1 - t that is 0 is 0, whatever the logarithm.

#ifndef SPECIALIZED
typedef float Prediction;  // what each image holds: float or half
typedef float Label;
typedef float Weight;
typedef float Gradient;
constant bool OVER_CHANNELS = true;  // softmax
constant bool SAME_CHANNELS = true;  // of predictions, labels and result
constant bool PACKED = false;  // packs are of neighbours, in aligned memory; else of elements that are LANES apart
#endif

constant constexpr uint HELD = 2;  // packs of 4 elements that a thread reads at once

struct Sizes {
    uint count;  // of runs of all images
    uint channels;
    uint label_channels;
    uint result_channels;  // of a pixel of the result
    uint size;             // elements of an image
    uint run;              // elements that LANES threads read
    Divisor runs;          // of an image
    uint loss_type;        // Apple's number
    uint wanted;           // 0 the loss, 1 its derivative by the prediction, 2 by the label
    uint has_weights;
    uint gradients;  // source gradients: 0 none, 1 for each element, 2 for each image, 3 one for all images
    float a;               // the smoothed label is a * t + b
    float b;
    float epsilon;
    float delta;
    float factor;  // of all values
};

float4 times(float4 t, float4 factor) {
    return select(t * factor, float4(0.0f), t == 0.0f);
}

float4 over(float4 t, float4 divisor) {
    return select(t / divisor, float4(0.0f), t == 0.0f);
}

float4 sign_of(float4 e) {
    return select(select(float4(0.0f), float4(-1.0f), e < 0.0f), float4(1.0f), e > 0.0f);
}

float4 element(float4 y, float4 t, constant Sizes& sizes) {
    float4 e = y - t;
    float4 size = abs(e);
    float delta = sizes.delta;
    switch (sizes.loss_type) {
        case 0:  // mean absolute error
            return size;
        case 1:  // mean squared error
            return e * e;
        case 3:  // sigmoid cross entropy
            return max(y, float4(0.0f)) - y * t + precise::log(1.0f + precise::exp(-abs(y)));
        case 4:  // categorical cross entropy
            return -times(t, precise::log(y));
        case 5:  // hinge
            return max(1.0f - (2.0f * t - 1.0f) * y, float4(0.0f));
        case 6:  // Huber
            return select(0.5f * delta * delta + delta * (size - delta), 0.5f * e * e, size <= delta);
        case 7:  // cosine distance
            return -y * t;
        case 8:  // log
            return -times(t, precise::log(y + sizes.epsilon)) -
                   times(1.0f - t, precise::log(1.0f - y + sizes.epsilon));
        default:  // Kullback-Leibler divergence
            return times(t, precise::log(t) - y);
    }
}

float4 slope(float4 y, float4 t, constant Sizes& sizes) {
    float4 e = y - t;
    switch (sizes.loss_type) {
        case 0:
            return sign_of(e);
        case 1:
            return 2.0f * e;
        case 3: {
            float4 z = precise::exp(-abs(y));
            return select(z, float4(1.0f), y >= 0.0f) / (1.0f + z) - t;
        }
        case 4:
            return -over(t, y);
        case 5:
            return select(float4(0.0f), 1.0f - 2.0f * t, 1.0f + (1.0f - 2.0f * t) * y > 0.0f);
        case 6:
            return clamp(e, float4(-sizes.delta), float4(sizes.delta));
        case 8:
            return over(1.0f - t, 1.0f - y + sizes.epsilon) - over(t, y + sizes.epsilon);
        default:  // cosine distance, Kullback-Leibler divergence
            return -t;
    }
}

float4 label_slope(float4 y, float4 t, constant Sizes& sizes) {
    float4 e = t - y;
    switch (sizes.loss_type) {
        case 0:
            return sign_of(e);
        case 1:
            return 2.0f * e;
        case 4:
            return -precise::log(y);
        case 5:
            return select(float4(0.0f), -2.0f * y, 1.0f + (1.0f - 2.0f * t) * y > 0.0f);
        case 6:
            return clamp(e, float4(-sizes.delta), float4(sizes.delta));
        case 8:
            return precise::log(1.0f - y + sizes.epsilon) - precise::log(y + sizes.epsilon);
        case 9:
            return precise::log(t) + 1.0f - y;
        default:  // sigmoid cross entropy, cosine distance
            return -y;
    }
}

// The elements of a run that a thread has: packs of 4 from `first` to below `end`. Threads past the last run read that
// run again, since their lanes take part in sums, and store nothing.
struct Part {
    uint run;
    uint image;
    Index first;
    Index end;
    bool stores;
};

Part part_of(uint id, constant Sizes& sizes) {
    uint run = min(id / LANES, sizes.count - 1);
    uint image = quotient(run, sizes.runs);
    Index start = Index(image) * sizes.size + Index(run - image * sizes.runs.value) * sizes.run;
    Index end = min(start + sizes.run, Index(image + 1) * sizes.size);
    return {run, image, start + id % LANES * (PACKED ? 4 : 1), end, id / LANES < sizes.count};
}

constant constexpr uint AT_ONCE = 4 * HELD * LANES;  // elements that the threads of a run read at once

Index element_at(Index first, uint slot, uint k) {
    return first + 4 * slot * LANES + k * (PACKED ? 1 : LANES);
}

// Elements past the end are the last one, or of the last pack.
template <typename T>
float4 pack_at(device const T* x, Index first, uint slot, Index end) {
    if (PACKED) {
        return float4(*(device const vec<T, 4>*)(x + min(element_at(first, slot, 0), end - 4)));
    }
    float4 pack;
    #pragma unroll
    for (uint k = 0; k < 4; ++k) {
        pack[k] = float(x[min(element_at(first, slot, k), end - 1)]);
    }
    return pack;
}

float4 labels_at(device const Label* t, Index first, uint slot, Index end, constant Sizes& sizes) {
    if (SAME_CHANNELS) {
        return pack_at(t, first, slot, end);
    }
    float4 pack;
    #pragma unroll
    for (uint k = 0; k < 4; ++k) {
        Index at = min(element_at(first, slot, k), end - 1);
        pack[k] = float(t[at / sizes.channels * sizes.label_channels + at % sizes.channels]);
    }
    return pack;
}

// The packs that a thread keeps in registers.
struct Held {
    float4 of[HELD];
};

template <typename T>
Held fetch(device const T* x, Index first, Index end) {
    Held held;
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        held.of[slot] = pack_at(x, first, slot, end);
    }
    return held;
}

Held fetch_labels(device const Label* t, Index first, Index end, constant Sizes& sizes) {
    Held held;
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        held.of[slot] = labels_at(t, first, slot, end, sizes);
    }
    return held;
}

// The pack, with 0 in place of elements past the end.
float4 inside(float4 pack, Index first, uint slot, Index end) {
    #pragma unroll
    for (uint k = 0; k < 4; ++k) {
        pack[k] = element_at(first, slot, k) < end ? pack[k] : 0.0f;
    }
    return pack;
}

// The statistics of the pixel whose softmax a thread computes.
struct Pixel {
    float largest;
    float inverse;  // of the sum of exp(y - largest)
    float logarithm;
};

float4 largest_in(Held held) {
    float4 largest = held.of[0];
    #pragma unroll
    for (uint slot = 1; slot < HELD; ++slot) {
        largest = max(largest, held.of[slot]);
    }
    return largest;
}

float sum_of_exponentials(Held held, float largest, Index first, Index end) {
    float4 sum = float4(0.0f);
    #pragma unroll
    for (uint slot = 0; slot < HELD; ++slot) {
        sum += inside(precise::exp(held.of[slot] - largest), first, slot, end);
    }
    return sum_of(sum);
}

// `held` has the first predictions of the thread; those of large pixels that it does not have are read again.
Pixel pixel_of(device const Prediction* y, Held held, Part part) {
    float4 most = largest_in(held);
    for (Index first = part.first + AT_ONCE; first < part.end; first += AT_ONCE) {
        most = max(most, largest_in(fetch(y, first, part.end)));
    }
    float largest = largest_of_lanes(largest_of(most));
    BlockedSum sum = empty_sum();
    sum.add(sum_of_exponentials(held, largest, part.first, part.end));
    for (Index first = part.first + AT_ONCE; first < part.end; first += AT_ONCE) {
        sum.add(sum_of_exponentials(fetch(y, first, part.end), largest, first, part.end));
    }
    float total = sum_of_lanes(sum.value());
    return {largest, 1.0f / total, precise::log(total)};
}

float4 value_of(float4 y, float4 t, Pixel pixel, constant Sizes& sizes) {
    t = sizes.a * t + sizes.b;
    if (OVER_CHANNELS) {
        float4 shifted = y - pixel.largest;
        return sizes.wanted == 0   ? times(t, pixel.logarithm - shifted)
               : sizes.wanted == 1 ? precise::exp(shifted) * pixel.inverse - t
                                   : pixel.logarithm - shifted;
    }
    return sizes.wanted == 0 ? element(y, t, sizes) : sizes.wanted == 1 ? slope(y, t, sizes) : label_slope(y, t, sizes);
}

// Store the elements before the end; channels that the predictions do not have are 0.
void store(float4 pack, device float* result, Index first, uint slot, Index end, constant Sizes& sizes) {
    if (PACKED) {
        if (element_at(first, slot, 0) < end) {
            *(device float4*)(result + element_at(first, slot, 0)) = pack;
        }
        return;
    }
    #pragma unroll
    for (uint k = 0; k < 4; ++k) {
        Index at = element_at(first, slot, k);
        if (at >= end) {
            continue;
        }
        if (SAME_CHANNELS) {
            result[at] = pack[k];
            continue;
        }
        Index target = at / sizes.channels * sizes.result_channels + at % sizes.channels;
        result[target] = pack[k];
        if (at % sizes.channels == sizes.channels - 1) {
            for (uint beyond = sizes.channels; beyond < sizes.result_channels; ++beyond) {
                result[target + 1 + beyond - sizes.channels] = 0;
            }
        }
    }
}

// The values of a run, times the weights, the factor and the gradient of its image.
kernel void values(device const Prediction* y [[buffer(0)]],
                   device const Label* t [[buffer(1)]],
                   device const Weight* weights [[buffer(2)]],
                   device const Gradient* g [[buffer(3)]],
                   constant Sizes& sizes [[buffer(4)]],
                   device float* result [[buffer(5)]],
                   uint id [[thread_position_in_grid]]) {
    if (is_surplus(id, sizes.count * LANES)) {
        return;
    }
    Part part = part_of(id, sizes);
    float factor = sizes.factor;
    if (sizes.gradients > 1) {
        factor *= float(g[sizes.gradients == 2 ? part.image : 0]);
    }
    Held predictions = fetch(y, part.first, part.end);
    Pixel pixel = {0, 1, 0};
    if (OVER_CHANNELS) {
        pixel = pixel_of(y, predictions, part);
    }
    if (!part.stores) {
        return;
    }
    for (Index first = part.first; first < part.end; first += AT_ONCE) {
        if (first != part.first) {
            predictions = fetch(y, first, part.end);
        }
        Held labels = fetch_labels(t, first, part.end, sizes);
        #pragma unroll
        for (uint slot = 0; slot < HELD; ++slot) {
            float4 pack = value_of(predictions.of[slot], labels.of[slot], pixel, sizes);
            if (sizes.has_weights) {
                pack *= pack_at(weights, first, slot, part.end);
            }
            if (sizes.gradients == 1) {
                pack *= pack_at(g, first, slot, part.end);
            }
            store(factor * pack, result, first, slot, part.end, sizes);
        }
    }
}

// The sum of the weighted losses of each run, times the factor, and how many of its weights are not 0.
kernel void sums(device const Prediction* y [[buffer(0)]],
                 device const Label* t [[buffer(1)]],
                 device const Weight* weights [[buffer(2)]],
                 device const Gradient* g [[buffer(3)]],
                 constant Sizes& sizes [[buffer(4)]],
                 device float* result [[buffer(5)]],
                 device float* counts [[buffer(6)]],
                 uint id [[thread_position_in_grid]]) {
    if (is_surplus(id, sizes.count * LANES)) {
        return;
    }
    Part part = part_of(id, sizes);
    Held predictions = fetch(y, part.first, part.end);
    Pixel pixel = {0, 1, 0};
    if (OVER_CHANNELS) {
        pixel = pixel_of(y, predictions, part);
    }
    BlockedSum sum = empty_sum();
    float count = 0;
    for (Index first = part.first; first < part.end; first += AT_ONCE) {
        if (first != part.first) {
            predictions = fetch(y, first, part.end);
        }
        Held labels = fetch_labels(t, first, part.end, sizes);
        #pragma unroll
        for (uint slot = 0; slot < HELD; ++slot) {
            float4 pack = value_of(predictions.of[slot], labels.of[slot], pixel, sizes);
            if (sizes.has_weights) {
                float4 weight = pack_at(weights, first, slot, part.end);
                pack *= weight;
                count += sum_of(inside(select(float4(1.0f), float4(0.0f), weight == 0.0f), first, slot, part.end));
            }
            sum.add(sum_of(inside(pack, first, slot, part.end)));
        }
    }
    float total = sum_of_lanes(sum.value());
    count = sum_of_lanes(count);
    if (part.stores && id % LANES == 0) {
        result[part.run] = total * sizes.factor;
        counts[part.run] = count;
    }
}

struct Finish {
    uint images;
    uint losses;     // 1 if the loss of all images is that of image 0, else `images`
    uint by_counts;  // whether losses are divided by the numbers of weights that are not 0
    float offset;
    float factor;
};

// The loss of each image: the sum plus an offset, times a factor.
kernel void finish(device const float* sums [[buffer(0)]],
                   device const float* counts [[buffer(1)]],
                   constant Finish& finish [[buffer(2)]],
                   device float* result [[buffer(3)]],
                   uint id [[thread_position_in_grid]]) {
    if (id >= finish.images) {
        return;
    }
    float loss = 0;
    if (id < finish.losses) {
        loss = (sums[id] + finish.offset) * finish.factor;
        if (finish.by_counts) {
            loss = counts[id] > 0 ? loss / counts[id] : 0.0f;
        }
    }
    result[id] = loss;
}
