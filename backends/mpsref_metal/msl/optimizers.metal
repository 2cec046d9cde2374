// Optimizers: one step on one element a thread. Values and moments are written to new arrays.

#ifndef SPECIALIZED
constant bool clipped = true;  // whether gradients are clipped
constant int penalty = 2;      // of the values: none, L1, L2
#endif

struct Numbers {
    uint count;
    float low;  // bounds of a gradient
    float high;
    float rescale;
    float scale;  // of the penalty
    float rate;
    float keep;  // how much of the first moment stays: momentum scale, decay, beta1
    float add;   // how much of the gradient comes in: 1 - decay, 1 - beta1
    float keep_square;
    float add_square;
    float epsilon;
};

// The gradient as the update uses it.
float prepared(float g, float v, constant Numbers& numbers) {
    if (clipped) {
        g = g < numbers.low ? numbers.low : (g > numbers.high ? numbers.high : g);
    }
    g *= numbers.rescale;
    if (penalty == 1) {
        g += v > 0 ? numbers.scale : (v < 0 ? -numbers.scale : 0.0f);
    } else if (penalty == 2) {
        g += numbers.scale * v;
    }
    return g;
}

kernel void plain(device const float* gradient [[buffer(0)]],
                  device const float* value [[buffer(1)]],
                  constant Numbers& numbers [[buffer(2)]],
                  device float* new_value [[buffer(3)]],
                  uint id [[thread_position_in_grid]]) {
    if (id >= numbers.count) {
        return;
    }
    float v = value[id];
    new_value[id] = v - numbers.rate * prepared(gradient[id], v, numbers);
}

// m holds the learning rate.
kernel void momentum(device const float* gradient [[buffer(0)]],
                     device const float* value [[buffer(1)]],
                     device const float* m [[buffer(2)]],
                     constant Numbers& numbers [[buffer(3)]],
                     device float* new_value [[buffer(4)]],
                     device float* new_m [[buffer(5)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= numbers.count) {
        return;
    }
    float v = value[id];
    float moved = numbers.keep * m[id] + numbers.rate * prepared(gradient[id], v, numbers);
    new_m[id] = moved;
    new_value[id] = v - moved;
}

// m does not hold the learning rate.
kernel void nesterov(device const float* gradient [[buffer(0)]],
                     device const float* value [[buffer(1)]],
                     device const float* m [[buffer(2)]],
                     constant Numbers& numbers [[buffer(3)]],
                     device float* new_value [[buffer(4)]],
                     device float* new_m [[buffer(5)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= numbers.count) {
        return;
    }
    float v = value[id];
    float g = prepared(gradient[id], v, numbers);
    float moved = numbers.keep * m[id] + g;
    new_m[id] = moved;
    new_value[id] = v - numbers.rate * (g + numbers.keep * moved);
}

kernel void rmsprop(device const float* gradient [[buffer(0)]],
                    device const float* value [[buffer(1)]],
                    device const float* s [[buffer(2)]],
                    constant Numbers& numbers [[buffer(3)]],
                    device float* new_value [[buffer(4)]],
                    device float* new_s [[buffer(5)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= numbers.count) {
        return;
    }
    float v = value[id];
    float g = prepared(gradient[id], v, numbers);
    float mean = numbers.keep_square * s[id] + numbers.add_square * (g * g);
    new_s[id] = mean;
    new_value[id] = v - numbers.rate * g / (sqrt(mean) + numbers.epsilon);
}

kernel void adam(device const float* gradient [[buffer(0)]],
                 device const float* value [[buffer(1)]],
                 device const float* m [[buffer(2)]],
                 device const float* u [[buffer(3)]],
                 constant Numbers& numbers [[buffer(4)]],
                 device float* new_value [[buffer(5)]],
                 device float* new_m [[buffer(6)]],
                 device float* new_u [[buffer(7)]],
                 uint id [[thread_position_in_grid]]) {
    if (id >= numbers.count) {
        return;
    }
    float v = value[id];
    float g = prepared(gradient[id], v, numbers);
    float moved = numbers.keep * m[id] + numbers.add * g;
    float velocity = numbers.keep_square * u[id] + numbers.add_square * (g * g);
    new_m[id] = moved;
    new_u[id] = velocity;
    new_value[id] = v - numbers.rate * moved / (sqrt(velocity) + numbers.epsilon);
}

// The largest velocity so far takes the place of the velocity.
kernel void amsgrad(device const float* gradient [[buffer(0)]],
                    device const float* value [[buffer(1)]],
                    device const float* m [[buffer(2)]],
                    device const float* u [[buffer(3)]],
                    device const float* umax [[buffer(4)]],
                    constant Numbers& numbers [[buffer(5)]],
                    device float* new_value [[buffer(6)]],
                    device float* new_m [[buffer(7)]],
                    device float* new_u [[buffer(8)]],
                    device float* new_umax [[buffer(9)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= numbers.count) {
        return;
    }
    float v = value[id];
    float g = prepared(gradient[id], v, numbers);
    float moved = numbers.keep * m[id] + numbers.add * g;
    float velocity = numbers.keep_square * u[id] + numbers.add_square * (g * g);
    float largest = max(umax[id], velocity);
    new_m[id] = moved;
    new_u[id] = velocity;
    new_umax[id] = largest;
    new_value[id] = v - numbers.rate * moved / (sqrt(largest) + numbers.epsilon);
}
