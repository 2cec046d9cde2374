// The functions of the neurons and their derivatives, for any kernel that begins or ends with one.
//
// The parameters are one buffer: a, b, c, the logarithm of the base c (Exponential, Logarithm), the sign of a negative
// number to the power of c (Power: 1, -1, or NaN where c is no integer), Apple's number of the type, and from index 8
// on the slopes of PReLU, one for each channel. All threads have the same type, so that no switch diverges.

constant int neuron_type = 5;    // where in the parameters the type is
constant int neuron_slopes = 8;  // where the slopes begin

// exp(-|x|) lies in (0, 1] and cannot overflow.
Values sigmoid_value(Values x) {
    Values z = precise::exp(-abs(x));
    return select(z, Values(1.0f), x >= 0.0f) / (1.0f + z);
}

Values sigmoid_slope(Values x) {
    Values z = precise::exp(-abs(x));
    Values t = 1.0f / (1.0f + z);
    return z * t * t;
}

Values relu_value(Values x, Values a) {
    return select(a * x, x, x >= 0.0f);
}

Values relu_slope(Values x, Values a) {
    return select(a, Values(1.0f), x >= 0.0f);
}

// Under fast math pow of a negative number is not reliable, and no table of the MSL specification covers pow of 0.
Values power_of(Values u, float c, float below) {
    if (c == 0) {
        return Values(1.0f);
    }
    Values p = precise::pow(abs(u), Values(c));
    p = select(p, below * p, u < 0.0f);
    return c > 0 ? select(p, Values(0.0f), u == 0.0f) : p;
}

// The share of the normal distribution below x, erfc(-x / sqrt(2)) / 2; Abramowitz and Stegun 7.1.26, error 1.5e-7.
Values normal_share(Values x) {
    Values v = abs(x) * M_SQRT1_2_F;
    Values t = 1.0f / (1.0f + 0.3275911f * v);
    Values p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    Values tail = 0.5f * p * precise::exp(-v * v);
    return select(tail, 1.0f - tail, x > 0.0f);
}

Values slopes_of(uint channel, device const float* neuron) {
    return ((device const Values*)(neuron + neuron_slopes))[channel];
}

Values neuron_value(Values x, uint channel, device const float* neuron) {
    float a = neuron[0], b = neuron[1], c = neuron[2];
    switch (int(neuron[neuron_type])) {
        case 1:  // ReLU
            return relu_value(x, Values(a));
        case 2:  // Linear
            return a * x + b;
        case 3:  // Sigmoid
            return sigmoid_value(x);
        case 4:  // HardSigmoid
            return clamp(a * x + b, Values(0.0f), Values(1.0f));
        case 5:  // TanH
            return a * precise::tanh(b * x);
        case 6:  // Absolute
            return abs(x);
        case 7: {  // SoftPlus
            Values u = b * x;
            return a * (max(u, Values(0.0f)) + precise::log(1.0f + precise::exp(-abs(u))));
        }
        case 8:  // SoftSign
            return x / (1.0f + abs(x));
        case 9:  // ELU
            return select(a * (precise::exp(min(x, Values(0.0f))) - 1.0f), x, x >= 0.0f);
        case 10:  // PReLU
            return relu_value(x, slopes_of(channel, neuron));
        case 11:  // ReLUN
            return min(relu_value(x, Values(a)), Values(b));
        case 12:  // Power
            return power_of(a * x + b, c, neuron[4]);
        case 13:  // Exponential
            return precise::exp((a * x + b) * neuron[3]);
        case 14:  // Logarithm
            return precise::log(a * x + b) / neuron[3];
        case 15:  // GeLU
            return x * normal_share(x);
        default:  // None
            return x;
    }
}

Values neuron_slope(Values x, uint channel, device const float* neuron) {
    float a = neuron[0], b = neuron[1], c = neuron[2];
    switch (int(neuron[neuron_type])) {
        case 1:  // ReLU
            return relu_slope(x, Values(a));
        case 2:  // Linear
            return Values(a);
        case 3:  // Sigmoid
            return sigmoid_slope(x);
        case 4: {  // HardSigmoid: both ends of the interval have the slope a
            Values u = a * x + b;
            return select(select(Values(0.0f), Values(a), u >= 0.0f), Values(0.0f), u > 1.0f);
        }
        case 5:  // TanH: 1 - tanh(b*x)^2 would cancel
            return 4.0f * a * b * sigmoid_slope(2.0f * b * x);
        case 6:  // Absolute
            return select(select(Values(0.0f), Values(-1.0f), x < 0.0f), Values(1.0f), x > 0.0f);
        case 7:  // SoftPlus
            return a * b * sigmoid_value(b * x);
        case 8: {  // SoftSign
            Values t = 1.0f / (1.0f + abs(x));
            return t * t;
        }
        case 9:  // ELU
            return select(a * precise::exp(min(x, Values(0.0f))), Values(1.0f), x >= 0.0f);
        case 10:  // PReLU
            return relu_slope(x, slopes_of(channel, neuron));
        case 11:  // ReLUN: flat where the clamp is reached
            return select(relu_slope(x, Values(a)), Values(0.0f), relu_value(x, Values(a)) >= b);
        case 12:  // Power
            return c == 0 ? Values(0.0f) : a * c * power_of(a * x + b, c - 1.0f, -neuron[4]);
        case 13:  // Exponential
            return a * neuron[3] * precise::exp((a * x + b) * neuron[3]);
        case 14:  // Logarithm
            return a / (neuron[3] * (a * x + b));
        case 15:  // GeLU; 1/sqrt(2 pi) = 0.398...
            return normal_share(x) + x * (0.3989422804f * precise::exp(-0.5f * x * x));
        default:  // None
            return Values(1.0f);
    }
}
