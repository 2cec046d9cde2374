// MPSGraph's max pooling with indices, forward and gradient. The number of a tap is the sum of what its row, its column,
// its image and its channel add to it; taps outside the image are not in the tables.

// The windows of a row or a column of the result: elements of the other image, and what they add to a number.
struct Numbered {
    int first;
    int count;
    int base;
    int step;
    int change;
};

// What an image and a channel add to a number.
struct Outer {
    int image;
    int channel;
};

int channels_of(float) {
    return 0;
}

int4 channels_of(float4) {
    return int4(0, 1, 2, 3);
}

// The numbers of the channels of a pack of which row and column have added `number`.
Number numbers_of(int number, Place at, constant Outer& outer) {
    int first = number + int(at.image) * outer.image + int(at.channel * WIDTH) * outer.channel;
    return Number(first) + channels_of(Values(0.0f)) * outer.channel;
}

kernel void forward(device const Storage* x [[buffer(0)]],
                    device const Numbered* rows [[buffer(1)]],
                    device const Numbered* columns [[buffer(2)]],
                    constant Outer& outer [[buffer(3)]],
                    constant Shapes& shapes [[buffer(4)]],
                    device Values* y [[buffer(5)]],
                    device Number* indices [[buffer(6)]],
                    uint id [[thread_position_in_grid]]) {
    if (id >= shapes.count) {
        return;
    }
    Place at = place_of(id, shapes);
    Numbered vertical = rows[at.row];
    Numbered horizontal = columns[at.column];
    Values best = Values(0.0f);
    Number found = Number(-1);  // the first tap is selected until a larger value is found: fast math has no infinities
    for (int i = 0; i < vertical.count; ++i) {
        for (int k = 0; k < horizontal.count; ++k) {
            Index from = index_of(at.image, shapes.source_height, shapes.source_width, vertical.first + i * vertical.step,
                                  horizontal.first + k * horizontal.step, shapes.channels, at.channel);
            Values value = Values(x[from]);
            Number number = numbers_of(vertical.base + i * vertical.change + horizontal.base + k * horizontal.change, at,
                                       outer);
            Flags better = (value > best || found < Number(0)) && value == value;
            best = select(best, value, better);
            found = select(found, number, better);
        }
    }
    y[id] = select(best, Values(-INFINITY), found < Number(0));
    indices[id] = found;
}

// dx = sum of g over the windows whose index is the number of their tap at this pixel.
kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Number* indices [[buffer(1)]],
                     device const Numbered* rows [[buffer(2)]],
                     device const Numbered* columns [[buffer(3)]],
                     constant Outer& outer [[buffer(4)]],
                     constant Shapes& shapes [[buffer(5)]],
                     device Values* dx [[buffer(6)]],
                     uint id [[thread_position_in_grid]]) {
    if (id >= shapes.count) {
        return;
    }
    Place at = place_of(id, shapes);
    Numbered vertical = rows[at.row];
    Numbered horizontal = columns[at.column];
    BlockedSum sum = empty_sum();
    for (int i = 0; i < vertical.count; ++i) {
        for (int k = 0; k < horizontal.count; ++k) {
            Index from = index_of(at.image, shapes.source_height, shapes.source_width, vertical.first + i * vertical.step,
                                  horizontal.first + k * horizontal.step, shapes.channels, at.channel);
            Number number = numbers_of(vertical.base + i * vertical.change + horizontal.base + k * horizontal.change, at,
                                       outer);
            sum.add(select(Values(0.0f), Values(g[from]), indices[from] == number));
        }
    }
    dx[id] = sum.value();
}
