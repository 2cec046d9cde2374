// Losses and their derivatives, element by element or, for softmax, pixel by pixel. LANES threads share a run of
// elements of an image, for softmax the channels of a pixel, and take packs of 4 elements in turn.
//
// All threads have the same loss type and result, so that no switch diverges. The product of a logarithm and a factor t
// or 1 - t is 0 where the factor is 0, even if the logarithm is infinite.

#ifndef SPECIALIZED
typedef float Prediction;  // what each image holds: float or half
typedef float Label;
typedef float Weight;
typedef float Gradient;
constant bool OVER_CHANNELS = true;  // softmax
constant bool PACKED = false;  // packs are of neighbours, in aligned memory; else of elements that are LANES apart
#endif

constant constexpr uint HELD = 2;  // packs of 4 elements that a thread reads at once

struct Loss {
    uint count;  // runs of all images
    uint size;             // elements of an image
    uint run;              // elements that LANES threads read
    Divisor runs;          // of an image
    uint type;             // Apple's number
    uint wanted;           // 0 the loss, 1 its derivative by the prediction, 2 by the label
    uint has_weights;
    uint gradients;  // source gradients: 0 none, 1 for each element, 2 for each image, 3 one for all images
    float a;               // the smoothed label is a * t + b
    float b;
    float epsilon;
    float delta;
    float factor;  // multiplies all values
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

float4 element(float4 y, float4 t, constant Loss& loss) {
    float4 e = y - t;
    float4 size = abs(e);
    float delta = loss.delta;
    switch (loss.type) {
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
            return -times(t, precise::log(y + loss.epsilon)) -
                   times(1.0f - t, precise::log(1.0f - y + loss.epsilon));
        default:  // Kullback-Leibler divergence
            return times(t, precise::log(t) - y);
    }
}

float4 slope(float4 y, float4 t, constant Loss& loss) {
    float4 e = y - t;
    switch (loss.type) {
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
            return clamp(e, float4(-loss.delta), float4(loss.delta));
        case 8:
            return over(1.0f - t, 1.0f - y + loss.epsilon) - over(t, y + loss.epsilon);
        default:  // cosine distance, Kullback-Leibler divergence
            return -t;
    }
}

float4 label_slope(float4 y, float4 t, constant Loss& loss) {
    float4 e = t - y;
    switch (loss.type) {
        case 0:
            return sign_of(e);
        case 1:
            return 2.0f * e;
        case 4:
            return -precise::log(y);
        case 5:
            return select(float4(0.0f), -2.0f * y, 1.0f + (1.0f - 2.0f * t) * y > 0.0f);
        case 6:
            return clamp(e, float4(-loss.delta), float4(loss.delta));
        case 8:
            return precise::log(1.0f - y + loss.epsilon) - precise::log(y + loss.epsilon);
        case 9:
            return precise::log(t) + 1.0f - y;
        default:  // sigmoid cross entropy, cosine distance
            return -y;
    }
}

// The elements of a thread: packs of 4 of a run, from `first` to below `end`. Threads past the last run read that run
// again, since their lanes take part in sums, and store nothing.
struct Lane {
    uint run;
    uint image;
    Index first;
    Index end;
    bool stores;
};

Lane lane_of(uint id, constant Loss& loss) {
    uint run = min(id / LANES, loss.count - 1);
    uint image = quotient(run, loss.runs);
    Index start = Index(image) * loss.size + Index(run - image * loss.runs.value) * loss.run;
    Index end = min(start + loss.run, Index(image + 1) * loss.size);
    return {run, image, start + id % LANES * (PACKED ? 4 : 1), end, id / LANES < loss.count};
}

constant constexpr uint AT_ONCE = 4 * HELD * LANES;  // elements that the threads of a run read at once

Index element_at(Index first, uint slot, uint k) {
    return first + 4 * slot * LANES + k * (PACKED ? 1 : LANES);
}

// Past the end the last element, or the last pack, is read again.
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

// `held` has the first predictions of the thread; the others, which only large pixels have, are read again.
Pixel pixel_of(device const Prediction* y, Held held, Lane lane) {
    float4 most = largest_in(held);
    for (Index first = lane.first + AT_ONCE; first < lane.end; first += AT_ONCE) {
        most = max(most, largest_in(fetch(y, first, lane.end)));
    }
    float largest = largest_of_lanes(largest_of(most));
    BlockedSum sum = empty_sum();
    sum.add(sum_of_exponentials(held, largest, lane.first, lane.end));
    for (Index first = lane.first + AT_ONCE; first < lane.end; first += AT_ONCE) {
        sum.add(sum_of_exponentials(fetch(y, first, lane.end), largest, first, lane.end));
    }
    float total = sum_of_lanes(sum.value());
    return {largest, 1.0f / total, precise::log(total)};
}

float4 value_of(float4 y, float4 t, Pixel pixel, constant Loss& loss) {
    t = loss.a * t + loss.b;
    if (OVER_CHANNELS) {
        float4 shifted = y - pixel.largest;
        return loss.wanted == 0   ? times(t, pixel.logarithm - shifted)
               : loss.wanted == 1 ? precise::exp(shifted) * pixel.inverse - t
                                   : pixel.logarithm - shifted;
    }
    return loss.wanted == 0 ? element(y, t, loss) : loss.wanted == 1 ? slope(y, t, loss) : label_slope(y, t, loss);
}

// Store the elements before the end.
void store(float4 pack, device float* result, Index first, uint slot, Index end) {
    if (PACKED) {
        if (element_at(first, slot, 0) < end) {
            *(device float4*)(result + element_at(first, slot, 0)) = pack;
        }
        return;
    }
    #pragma unroll
    for (uint k = 0; k < 4; ++k) {
        if (element_at(first, slot, k) < end) {
            result[element_at(first, slot, k)] = pack[k];
        }
    }
}

// The values of a run, times the weights, the factor and the gradient of its image.
kernel void values(device const Prediction* y [[buffer(0)]],
                   device const Label* t [[buffer(1)]],
                   device const Weight* weights [[buffer(2)]],
                   device const Gradient* g [[buffer(3)]],
                   constant Loss& loss [[buffer(4)]],
                   device float* result [[buffer(5)]],
                   uint id [[thread_position_in_grid]]) {
    if (is_surplus(id, loss.count * LANES)) {
        return;
    }
    Lane lane = lane_of(id, loss);
    float factor = loss.factor;
    if (loss.gradients > 1) {
        factor *= float(g[loss.gradients == 2 ? lane.image : 0]);
    }
    Held predictions = fetch(y, lane.first, lane.end);
    Pixel pixel = {0, 1, 0};
    if (OVER_CHANNELS) {
        pixel = pixel_of(y, predictions, lane);
    }
    if (!lane.stores) {
        return;
    }
    for (Index first = lane.first; first < lane.end; first += AT_ONCE) {
        if (first != lane.first) {
            predictions = fetch(y, first, lane.end);
        }
        Held labels = fetch(t, first, lane.end);
        #pragma unroll
        for (uint slot = 0; slot < HELD; ++slot) {
            float4 pack = value_of(predictions.of[slot], labels.of[slot], pixel, loss);
            if (loss.has_weights) {
                pack *= pack_at(weights, first, slot, lane.end);
            }
            if (loss.gradients == 1) {
                pack *= pack_at(g, first, slot, lane.end);
            }
            store(factor * pack, result, first, slot, lane.end);
        }
    }
}

// The sum of the weighted losses of each run, times the factor, and how many of its weights are not 0.
kernel void sums(device const Prediction* y [[buffer(0)]],
                 device const Label* t [[buffer(1)]],
                 device const Weight* weights [[buffer(2)]],
                 device const Gradient* g [[buffer(3)]],
                 constant Loss& loss [[buffer(4)]],
                 device float* result [[buffer(5)]],
                 device float* counts [[buffer(6)]],
                 uint id [[thread_position_in_grid]]) {
    if (is_surplus(id, loss.count * LANES)) {
        return;
    }
    Lane lane = lane_of(id, loss);
    Held predictions = fetch(y, lane.first, lane.end);
    Pixel pixel = {0, 1, 0};
    if (OVER_CHANNELS) {
        pixel = pixel_of(y, predictions, lane);
    }
    BlockedSum sum = empty_sum();
    float count = 0;
    for (Index first = lane.first; first < lane.end; first += AT_ONCE) {
        if (first != lane.first) {
            predictions = fetch(y, first, lane.end);
        }
        Held labels = fetch(t, first, lane.end);
        #pragma unroll
        for (uint slot = 0; slot < HELD; ++slot) {
            float4 pack = value_of(predictions.of[slot], labels.of[slot], pixel, loss);
            if (loss.has_weights) {
                float4 weight = pack_at(weights, first, slot, lane.end);
                pack *= weight;
                count += sum_of(inside(select(float4(1.0f), float4(0.0f), weight == 0.0f), first, slot, lane.end));
            }
            sum.add(sum_of(inside(pack, first, slot, lane.end)));
        }
    }
    float total = sum_of_lanes(sum.value());
    count = sum_of_lanes(count);
    if (lane.stores && id % LANES == 0) {
        result[lane.run] = total * loss.factor;
        counts[lane.run] = count;
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
