// Sums over rows of an image, in several launches: part k of a sum has the rows k, k + parts, ... There is a thread for
// each part and pack.

struct Fold {
    uint count;
    uint rows;      // of an image
    Divisor parts;  // of a sum; 1 in the last launch
    Divisor size;   // packs of a row
    uint channels;  // packs
};

// sums[image, part, i] = neuron(sum over the rows of the part of source[image, row, i])
kernel void fold(device const Gradient* source [[buffer(0)]],
                 device const float* neuron [[buffer(1)]],
                 constant Fold& fold [[buffer(2)]],
                 device Values* sums [[buffer(3)]],
                 uint id [[thread_position_in_grid]]) {
    if (id >= fold.count) {
        return;
    }
    uint line = quotient(id, fold.size);
    uint image = quotient(line, fold.parts);
    uint at = id - line * fold.size.value;
    Index start = Index(image) * fold.rows * fold.size.value + at;
    Values sum = Values(0.0f);
    for (uint row = line - image * fold.parts.value; row < fold.rows; row += fold.parts.value) {
        sum += Values(source[start + Index(row) * fold.size.value]);
    }
    sums[id] = neuron_value(sum, at % fold.channels, neuron);
}
