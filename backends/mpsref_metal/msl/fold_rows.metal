// The sum over all rows of an image: one thread for each column and WIDTH channels. Rows are summed up in float32, and were
// folded along the other axes before.

struct Rows {
    uint count;
    uint height;
    uint size;  // of a row
};

kernel void fold_rows(device const Values* source [[buffer(0)]],
                      constant Rows& rows [[buffer(1)]],
                      device Values* sums [[buffer(2)]],
                      uint id [[thread_position_in_grid]]) {
    if (id >= rows.count) {
        return;
    }
    BlockedSum sum = empty_sum();
    Index start = Index(id / rows.size) * rows.height * rows.size + id % rows.size;
    for (uint row = 0; row < rows.height; ++row) {
        sum.add(source[start + Index(row) * rows.size]);
    }
    sums[id] = sum.value();
}
