// Optimizers: one step on WIDTH elements a thread. Values and moments are written to new arrays.

struct Numbers {
    uint count;
    uint clips;    // whether gradients are clipped
    uint penalty;  // of the values: none, L1, L2
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
Values prepared(Values g, Values v, constant Numbers& numbers) {
    if (numbers.clips) {
        g = select(select(g, Values(numbers.high), g > numbers.high), Values(numbers.low), g < numbers.low);
    }
    g *= numbers.rescale;
    if (numbers.penalty == 1) {
        Values falling = select(Values(0.0f), Values(-numbers.scale), v < 0.0f);
        g += select(falling, Values(numbers.scale), v > 0.0f);
    } else if (numbers.penalty == 2) {
        g += numbers.scale * v;
    }
    return g;
}

kernel void plain(device const Values* gradient [[buffer(0)]],
                  device const Values* value [[buffer(1)]],
                  constant Numbers& numbers [[buffer(2)]],
                  device Values* new_value [[buffer(3)]],
                  uint id [[thread_position_in_grid]]) {
    if (id >= numbers.count) {
        return;
    }
    Values v = value[id];
    new_value[id] = v - numbers.rate * prepared(gradient[id], v, numbers);
}

// m holds the learning rate.
kernel void momentum(device const Values* gradient [[buffer(0)]],
                     device const Values* value [[buffer(1)]],
                     device const Values* m [[buffer(2)]],
                     constant Numbers& numbers [[buffer(3)]],
                     device Values* new_value [[buffer(4)]],
                     device Values* new_m [[buffer(5)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= numbers.count) {
        return;
    }
    Values v = value[id];
    Values moved = numbers.keep * m[id] + numbers.rate * prepared(gradient[id], v, numbers);
    new_m[id] = moved;
    new_value[id] = v - moved;
}

// m does not hold the learning rate.
kernel void nesterov(device const Values* gradient [[buffer(0)]],
                     device const Values* value [[buffer(1)]],
                     device const Values* m [[buffer(2)]],
                     constant Numbers& numbers [[buffer(3)]],
                     device Values* new_value [[buffer(4)]],
                     device Values* new_m [[buffer(5)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= numbers.count) {
        return;
    }
    Values v = value[id];
    Values g = prepared(gradient[id], v, numbers);
    Values moved = numbers.keep * m[id] + g;
    new_m[id] = moved;
    new_value[id] = v - numbers.rate * (g + numbers.keep * moved);
}

kernel void rmsprop(device const Values* gradient [[buffer(0)]],
                    device const Values* value [[buffer(1)]],
                    device const Values* s [[buffer(2)]],
                    constant Numbers& numbers [[buffer(3)]],
                    device Values* new_value [[buffer(4)]],
                    device Values* new_s [[buffer(5)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= numbers.count) {
        return;
    }
    Values v = value[id];
    Values g = prepared(gradient[id], v, numbers);
    Values mean = numbers.keep_square * s[id] + numbers.add_square * (g * g);
    new_s[id] = mean;
    new_value[id] = v - numbers.rate * g / (sqrt(mean) + numbers.epsilon);
}

kernel void adam(device const Values* gradient [[buffer(0)]],
                 device const Values* value [[buffer(1)]],
                 device const Values* m [[buffer(2)]],
                 device const Values* u [[buffer(3)]],
                 constant Numbers& numbers [[buffer(4)]],
                 device Values* new_value [[buffer(5)]],
                 device Values* new_m [[buffer(6)]],
                 device Values* new_u [[buffer(7)]],
                 uint id [[thread_position_in_grid]]) {
    if (id >= numbers.count) {
        return;
    }
    Values v = value[id];
    Values g = prepared(gradient[id], v, numbers);
    Values moved = numbers.keep * m[id] + numbers.add * g;
    Values velocity = numbers.keep_square * u[id] + numbers.add_square * (g * g);
    new_m[id] = moved;
    new_u[id] = velocity;
    new_value[id] = v - numbers.rate * moved / (sqrt(velocity) + numbers.epsilon);
}

// The largest velocity so far takes the place of the velocity.
kernel void amsgrad(device const Values* gradient [[buffer(0)]],
                    device const Values* value [[buffer(1)]],
                    device const Values* m [[buffer(2)]],
                    device const Values* u [[buffer(3)]],
                    device const Values* umax [[buffer(4)]],
                    constant Numbers& numbers [[buffer(5)]],
                    device Values* new_value [[buffer(6)]],
                    device Values* new_m [[buffer(7)]],
                    device Values* new_u [[buffer(8)]],
                    device Values* new_umax [[buffer(9)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= numbers.count) {
        return;
    }
    Values v = value[id];
    Values g = prepared(gradient[id], v, numbers);
    Values moved = numbers.keep * m[id] + numbers.add * g;
    Values velocity = numbers.keep_square * u[id] + numbers.add_square * (g * g);
    Values largest = max(umax[id], velocity);
    new_m[id] = moved;
    new_u[id] = velocity;
    new_umax[id] = largest;
    new_value[id] = v - numbers.rate * moved / (sqrt(largest) + numbers.epsilon);
}
