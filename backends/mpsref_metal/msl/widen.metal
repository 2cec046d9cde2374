// Rows with zeros behind them, so that four neighbouring channels can be read together.

struct Widen {
    uint count;  // packs of four values of the result
    uint width;  // of a row of the source
    uint packs;  // of a row of the result
};

kernel void widen(device const Storage* source [[buffer(0)]],
                  constant Widen& shape [[buffer(1)]],
                  device float4* result [[buffer(2)]],
                  uint id [[thread_position_in_grid]]) {
    if (id >= shape.count) {
        return;
    }
    uint row = id / shape.packs;
    uint first = (id - row * shape.packs) * 4;
    float4 values = float4(0.0f);
    for (uint i = 0; i < 4; ++i) {
        if (first + i < shape.width) {
            values[i] = float(source[Index(row) * shape.width + first + i]);
        }
    }
    result[id] = values;
}
