// The functions of the neurons and their derivatives, for any kernel that begins or ends with one.
//
// The parameters are one buffer: a, b, c, the logarithm of the base c (Exponential, Logarithm), the sign of a negative
// number to the power of c (Power: 1, -1, or NaN where c is no integer), Apple's number of the type, then the slopes of
// PReLU, one for each channel. The type is the same for all threads, so each switch goes one way in all of them.

constant int neuron_type = 5;    // where in the parameters the type is
constant int neuron_slopes = 6;  // where the slopes begin

// exp(-|x|) lies in (0, 1] and cannot overflow.
float sigmoid_value(float x) {
    float z = precise::exp(-abs(x));
    return (x >= 0 ? 1.0f : z) / (1.0f + z);
}

float sigmoid_slope(float x) {
    float z = precise::exp(-abs(x));
    float t = 1.0f / (1.0f + z);
    return z * t * t;
}

float relu_value(float x, float a) {
    return x >= 0 ? x : a * x;
}

float relu_slope(float x, float a) {
    return x >= 0 ? 1.0f : a;
}

// pow of a negative number is not reliable under fast math, and MSL has it of 0 in no table.
float power_of(float u, float c, float below) {
    if (c == 0) {
        return 1.0f;
    }
    if (u == 0 && c > 0) {
        return 0.0f;
    }
    float p = precise::pow(abs(u), c);
    return u < 0 ? below * p : p;
}

// The share of the normal distribution below x, erfc(-x / sqrt(2)) / 2; Abramowitz and Stegun 7.1.26, error 1.5e-7.
float normal_share(float x) {
    float v = abs(x) * M_SQRT1_2_F;
    float t = 1.0f / (1.0f + 0.3275911f * v);
    float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    float tail = 0.5f * p * precise::exp(-v * v);
    return x > 0 ? 1.0f - tail : tail;
}

float neuron_value(float x, uint channel, device const float* neuron) {
    float a = neuron[0], b = neuron[1], c = neuron[2];
    switch (int(neuron[neuron_type])) {
        case 1:  // ReLU
            return relu_value(x, a);
        case 2:  // Linear
            return a * x + b;
        case 3:  // Sigmoid
            return sigmoid_value(x);
        case 4:  // HardSigmoid
            return clamp(a * x + b, 0.0f, 1.0f);
        case 5:  // TanH
            return a * precise::tanh(b * x);
        case 6:  // Absolute
            return abs(x);
        case 7: {  // SoftPlus
            float u = b * x;
            return a * (max(u, 0.0f) + precise::log(1.0f + precise::exp(-abs(u))));
        }
        case 8:  // SoftSign
            return x / (1.0f + abs(x));
        case 9:  // ELU
            return x >= 0 ? x : a * (precise::exp(min(x, 0.0f)) - 1.0f);
        case 10:  // PReLU
            return relu_value(x, neuron[neuron_slopes + channel]);
        case 11:  // ReLUN
            return min(relu_value(x, a), b);
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

float neuron_slope(float x, uint channel, device const float* neuron) {
    float a = neuron[0], b = neuron[1], c = neuron[2];
    switch (int(neuron[neuron_type])) {
        case 1:  // ReLU
            return relu_slope(x, a);
        case 2:  // Linear
            return a;
        case 3:  // Sigmoid
            return sigmoid_slope(x);
        case 4: {  // HardSigmoid: both ends belong to the slope
            float u = a * x + b;
            return u >= 0 && u <= 1 ? a : 0.0f;
        }
        case 5:  // TanH: 1 - tanh(b*x)^2 would cancel
            return 4.0f * a * b * sigmoid_slope(2.0f * b * x);
        case 6:  // Absolute
            return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
        case 7:  // SoftPlus
            return a * b * sigmoid_value(b * x);
        case 8: {  // SoftSign
            float t = 1.0f / (1.0f + abs(x));
            return t * t;
        }
        case 9:  // ELU
            return x >= 0 ? 1.0f : a * precise::exp(min(x, 0.0f));
        case 10:  // PReLU
            return relu_slope(x, neuron[neuron_slopes + channel]);
        case 11:  // ReLUN: flat where the clamp is reached
            return relu_value(x, a) >= b ? 0.0f : relu_slope(x, a);
        case 12:  // Power
            return c == 0 ? 0.0f : a * c * power_of(a * x + b, c - 1.0f, -neuron[4]);
        case 13:  // Exponential
            return a * neuron[3] * precise::exp((a * x + b) * neuron[3]);
        case 14:  // Logarithm
            return a / (neuron[3] * (a * x + b));
        case 15:  // GeLU; 1/sqrt(2 pi) = 0.398...
            return normal_share(x) + x * (0.3989422804f * precise::exp(-0.5f * x * x));
        default:  // None
            return 1.0f;
    }
}
