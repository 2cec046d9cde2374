// Sums over rows of an image, in several launches: part k of a sum has the rows k, k + parts, ... There is a thread for
// each part and pack, or LANES threads that take its rows in turn. A thread reads READ rows before it adds, so that enough
// of memory is on its way.

constant constexpr uint READ = 8;

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
    if (is_surplus(id, fold.count * LANES)) {
        return;
    }
    uint sum_id = min(id / LANES, fold.count - 1);  // threads past the end take part in the sums of lanes
    uint line = quotient(sum_id, fold.size);
    uint image = quotient(line, fold.parts);
    uint at = sum_id - line * fold.size.value;
    Index start = Index(image) * fold.rows * fold.size.value + at;
    uint apart = fold.parts.value * LANES;
    uint first = line - image * fold.parts.value + id % LANES * fold.parts.value;
    uint rows = first < fold.rows ? (fold.rows - first - 1) / apart + 1 : 0;
    Values sum = Values(0.0f);
    for (uint k = 0; k < rows; k += READ) {
        Values read[READ];
#pragma clang loop unroll(full)
        for (uint i = 0; i < READ; ++i) {
            uint row = first + min(k + i, rows - 1) * apart;
            read[i] = Values(source[start + Index(row) * fold.size.value]);
        }
#pragma clang loop unroll(full)
        for (uint i = 0; i < READ; ++i) {
            if (k + i < rows) {
                sum += read[i];
            }
        }
    }
    sum = sum_of_lanes(sum);
    if (id % LANES == 0 && id / LANES < fold.count) {
        sums[sum_id] = neuron_value(sum, at % fold.channels, neuron);
    }
}
