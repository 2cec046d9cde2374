// Losses and their derivatives, element by element or, for softmax, pixel by pixel. LANES threads share a run of
// elements of an image, for softmax the channels of a pixel, and take them in turn.
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
#endif

struct Sizes {
    uint count;  // of runs of all images
    uint channels;
    uint label_channels;
    uint result_channels;  // of a pixel of the result
    uint size;             // elements of an image
    uint run;              // elements that LANES threads look at
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

float times(float t, float factor) {
    return t == 0 ? 0.0f : t * factor;
}

float over(float t, float divisor) {
    return t == 0 ? 0.0f : t / divisor;
}

float sign_of(float e) {
    return e > 0 ? 1.0f : (e < 0 ? -1.0f : 0.0f);
}

float element(float y, float t, constant Sizes& sizes) {
    float e = y - t;
    float size = abs(e);
    switch (sizes.loss_type) {
        case 0:  // mean absolute error
            return size;
        case 1:  // mean squared error
            return e * e;
        case 3:  // sigmoid cross entropy
            return max(y, 0.0f) - y * t + precise::log(1.0f + precise::exp(-abs(y)));
        case 4:  // categorical cross entropy
            return -times(t, precise::log(y));
        case 5:  // hinge
            return max(1.0f - (2.0f * t - 1.0f) * y, 0.0f);
        case 6:  // Huber
            return size <= sizes.delta ? 0.5f * e * e
                                       : 0.5f * sizes.delta * sizes.delta + sizes.delta * (size - sizes.delta);
        case 7:  // cosine distance
            return -y * t;
        case 8:  // log
            return -times(t, precise::log(y + sizes.epsilon)) -
                   times(1.0f - t, precise::log(1.0f - y + sizes.epsilon));
        default:  // Kullback-Leibler divergence
            return times(t, precise::log(t) - y);
    }
}

float slope(float y, float t, constant Sizes& sizes) {
    float e = y - t;
    switch (sizes.loss_type) {
        case 0:
            return sign_of(e);
        case 1:
            return 2.0f * e;
        case 3: {
            float z = precise::exp(-abs(y));
            return (y >= 0 ? 1.0f : z) / (1.0f + z) - t;
        }
        case 4:
            return -over(t, y);
        case 5:
            return 1.0f + (1.0f - 2.0f * t) * y > 0 ? 1.0f - 2.0f * t : 0.0f;
        case 6:
            return clamp(e, -sizes.delta, sizes.delta);
        case 8:
            return over(1.0f - t, 1.0f - y + sizes.epsilon) - over(t, y + sizes.epsilon);
        default:  // cosine distance, Kullback-Leibler divergence
            return -t;
    }
}

float label_slope(float y, float t, constant Sizes& sizes) {
    float e = t - y;
    switch (sizes.loss_type) {
        case 0:
            return sign_of(e);
        case 1:
            return 2.0f * e;
        case 4:
            return -precise::log(y);
        case 5:
            return 1.0f + (1.0f - 2.0f * t) * y > 0 ? -2.0f * y : 0.0f;
        case 6:
            return clamp(e, -sizes.delta, sizes.delta);
        case 8:
            return precise::log(1.0f - y + sizes.epsilon) - precise::log(y + sizes.epsilon);
        case 9:
            return precise::log(t) + 1.0f - y;
        default:  // sigmoid cross entropy, cosine distance
            return -y;
    }
}

// What a thread needs to know of the pixel that it computes softmax of.
struct Pixel {
    float largest;
    float total;  // of exp(y - largest)
    float logarithm;
};

Pixel pixel_of(device const Prediction* y, uint lane, uint channels) {
    float largest = float(y[0]);
    for (uint k = lane; k < channels; k += LANES) {
        largest = max(largest, float(y[k]));
    }
    largest = largest_of_lanes(largest);
    BlockedSum sum = empty_sum();
    for (uint k = lane; k < channels; k += LANES) {
        sum.add(precise::exp(float(y[k]) - largest));
    }
    float total = sum_of_lanes(sum.value());
    return {largest, total, precise::log(total)};
}

float value_of(float y, float t, Pixel pixel, constant Sizes& sizes) {
    t = sizes.a * t + sizes.b;
    if (sizes.loss_type == 2) {
        float shifted = y - pixel.largest;
        return sizes.wanted == 0   ? times(t, pixel.logarithm - shifted)
               : sizes.wanted == 1 ? precise::exp(shifted) / pixel.total - t
                             : pixel.logarithm - shifted;
    }
    return sizes.wanted == 0 ? element(y, t, sizes) : sizes.wanted == 1 ? slope(y, t, sizes) : label_slope(y, t, sizes);
}

Index label_at(Index at, constant Sizes& sizes) {
    return SAME_CHANNELS ? at : at / sizes.channels * sizes.label_channels + at % sizes.channels;
}

// The weighted value of one element.
float weighted(float prediction,
               float label,
               device const Weight* weights,
               device const Gradient* g,
               Pixel pixel,
               Index at,
               constant Sizes& sizes) {
    float value = value_of(prediction, label, pixel, sizes);
    value *= sizes.has_weights ? float(weights[at]) : 1.0f;
    return sizes.gradients == 1 ? float(g[at]) * value : value;
}

// The elements of a thread: first, first + LANES, ... below end. Threads past the last run look at that run again, since
// their lanes take part in sums, and store nothing.
struct Part {
    uint run;
    uint image;
    Index start;
    Index first;
    Index end;
    bool stores;
};

Part part_of(uint id, constant Sizes& sizes) {
    uint run = min(id / LANES, sizes.count - 1);
    uint image = quotient(run, sizes.runs);
    Index start = Index(image) * sizes.size + Index(run - image * sizes.runs.value) * sizes.run;
    Index end = min(start + sizes.run, Index(image + 1) * sizes.size);
    return {run, image, start, start + id % LANES, end, id / LANES < sizes.count};
}

Pixel pixel_at(device const Prediction* y, Part part, constant Sizes& sizes) {
    if (OVER_CHANNELS) {
        return pixel_of(y + part.start, uint(part.first - part.start), sizes.channels);
    }
    return {0, 1, 0};
}

// The values of a run, times the factor and the gradient of its image; channels that the predictions do not have are 0.
kernel void values(device const Prediction* y [[buffer(0)]],
                   device const Label* t [[buffer(1)]],
                   device const Weight* weights [[buffer(2)]],
                   device const Gradient* g [[buffer(3)]],
                   constant Sizes& sizes [[buffer(4)]],
                   device float* result [[buffer(5)]],
                   uint id [[thread_position_in_grid]]) {
    Part part = part_of(id, sizes);
    float factor = sizes.factor;
    if (sizes.gradients > 1) {
        factor *= float(g[sizes.gradients == 2 ? part.image : 0]);
    }
    Pixel pixel = pixel_at(y, part, sizes);
    for (Index at = part.first; part.stores && at < part.end; at += LANES) {
        float label = float(t[label_at(at, sizes)]);
        float value = factor * weighted(float(y[at]), label, weights, g, pixel, at, sizes);
        if (SAME_CHANNELS) {
            result[at] = value;
            continue;
        }
        Index target = at / sizes.channels * sizes.result_channels + at % sizes.channels;
        result[target] = value;
        if (at % sizes.channels == sizes.channels - 1) {
            for (uint beyond = sizes.channels; beyond < sizes.result_channels; ++beyond) {
                result[target + 1 + beyond - sizes.channels] = 0;
            }
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
    Part part = part_of(id, sizes);
    Pixel pixel = pixel_at(y, part, sizes);
    BlockedSum sum = empty_sum();
    float count = 0;
    Index next = min(part.first, part.end - 1);
    float next_prediction = float(y[next]);
    float next_label = float(t[label_at(next, sizes)]);
    for (Index at = part.first; at < part.end; at += LANES) {
        float prediction = next_prediction;
        float label = next_label;
        next = min(at + LANES, part.end - 1);  // is read before this one is computed
        next_prediction = float(y[next]);
        next_label = float(t[label_at(next, sizes)]);
        sum.add(weighted(prediction, label, weights, g, pixel, at, sizes));
        if (sizes.has_weights) {
            count += float(weights[at]) != 0 ? 1.0f : 0.0f;
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
