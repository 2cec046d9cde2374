// Optimizers: one step; a thread updates WIDTH elements. Values and moments are written to new arrays.

struct Optimizer {
    uint count;
    uint clips;    // whether gradients are clipped
    uint penalty;  // of the values: 0 none, 1 L1, 2 L2
    float low;  // bounds of a clipped gradient
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
Values prepared(Values g, Values v, constant Optimizer& optimizer) {
    if (optimizer.clips) {
        g = select(select(g, Values(optimizer.high), g > optimizer.high), Values(optimizer.low), g < optimizer.low);
    }
    g *= optimizer.rescale;
    if (optimizer.penalty == 1) {
        Values falling = select(Values(0.0f), Values(-optimizer.scale), v < 0.0f);
        g += select(falling, Values(optimizer.scale), v > 0.0f);
    } else if (optimizer.penalty == 2) {
        g += optimizer.scale * v;
    }
    return g;
}

kernel void plain(device const Values* gradient [[buffer(0)]],
                  device const Values* value [[buffer(1)]],
                  constant Optimizer& optimizer [[buffer(2)]],
                  device Values* new_value [[buffer(3)]],
                  uint id [[thread_position_in_grid]]) {
    if (id >= optimizer.count) {
        return;
    }
    Values v = value[id];
    new_value[id] = v - optimizer.rate * prepared(gradient[id], v, optimizer);
}

// m includes the learning rate.
kernel void momentum(device const Values* gradient [[buffer(0)]],
                     device const Values* value [[buffer(1)]],
                     device const Values* m [[buffer(2)]],
                     constant Optimizer& optimizer [[buffer(3)]],
                     device Values* new_value [[buffer(4)]],
                     device Values* new_m [[buffer(5)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= optimizer.count) {
        return;
    }
    Values v = value[id];
    Values moved = optimizer.keep * m[id] + optimizer.rate * prepared(gradient[id], v, optimizer);
    new_m[id] = moved;
    new_value[id] = v - moved;
}

// m does not include the learning rate.
kernel void nesterov(device const Values* gradient [[buffer(0)]],
                     device const Values* value [[buffer(1)]],
                     device const Values* m [[buffer(2)]],
                     constant Optimizer& optimizer [[buffer(3)]],
                     device Values* new_value [[buffer(4)]],
                     device Values* new_m [[buffer(5)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= optimizer.count) {
        return;
    }
    Values v = value[id];
    Values g = prepared(gradient[id], v, optimizer);
    Values moved = optimizer.keep * m[id] + g;
    new_m[id] = moved;
    new_value[id] = v - optimizer.rate * (g + optimizer.keep * moved);
}

kernel void rmsprop(device const Values* gradient [[buffer(0)]],
                    device const Values* value [[buffer(1)]],
                    device const Values* s [[buffer(2)]],
                    constant Optimizer& optimizer [[buffer(3)]],
                    device Values* new_value [[buffer(4)]],
                    device Values* new_s [[buffer(5)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= optimizer.count) {
        return;
    }
    Values v = value[id];
    Values g = prepared(gradient[id], v, optimizer);
    Values mean = optimizer.keep_square * s[id] + optimizer.add_square * (g * g);
    new_s[id] = mean;
    new_value[id] = v - optimizer.rate * g / (sqrt(mean) + optimizer.epsilon);
}

kernel void adam(device const Values* gradient [[buffer(0)]],
                 device const Values* value [[buffer(1)]],
                 device const Values* m [[buffer(2)]],
                 device const Values* u [[buffer(3)]],
                 constant Optimizer& optimizer [[buffer(4)]],
                 device Values* new_value [[buffer(5)]],
                 device Values* new_m [[buffer(6)]],
                 device Values* new_u [[buffer(7)]],
                 uint id [[thread_position_in_grid]]) {
    if (id >= optimizer.count) {
        return;
    }
    Values v = value[id];
    Values g = prepared(gradient[id], v, optimizer);
    Values moved = optimizer.keep * m[id] + optimizer.add * g;
    Values velocity = optimizer.keep_square * u[id] + optimizer.add_square * (g * g);
    new_m[id] = moved;
    new_u[id] = velocity;
    new_value[id] = v - optimizer.rate * moved / (sqrt(velocity) + optimizer.epsilon);
}

// The largest velocity so far takes the place of the velocity.
kernel void amsgrad(device const Values* gradient [[buffer(0)]],
                    device const Values* value [[buffer(1)]],
                    device const Values* m [[buffer(2)]],
                    device const Values* u [[buffer(3)]],
                    device const Values* umax [[buffer(4)]],
                    constant Optimizer& optimizer [[buffer(5)]],
                    device Values* new_value [[buffer(6)]],
                    device Values* new_m [[buffer(7)]],
                    device Values* new_u [[buffer(8)]],
                    device Values* new_umax [[buffer(9)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= optimizer.count) {
        return;
    }
    Values v = value[id];
    Values g = prepared(gradient[id], v, optimizer);
    Values moved = optimizer.keep * m[id] + optimizer.add * g;
    Values velocity = optimizer.keep_square * u[id] + optimizer.add_square * (g * g);
    Values largest = max(umax[id], velocity);
    new_m[id] = moved;
    new_u[id] = velocity;
    new_umax[id] = largest;
    new_value[id] = v - optimizer.rate * moved / (sqrt(largest) + optimizer.epsilon);
}
