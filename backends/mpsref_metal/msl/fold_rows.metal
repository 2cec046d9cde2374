// Sums over parts of the rows of an image: part k has the rows k, k + parts, ... There is a thread for each part,
// column and pack.

struct Rows {
    uint count;
    uint height;
    Divisor parts;
    Divisor size;  // of a row
};

kernel void fold_rows(device const Values* source [[buffer(0)]],
                      constant Rows& rows [[buffer(1)]],
                      device Values* sums [[buffer(2)]],
                      uint id [[thread_position_in_grid]]) {
    if (id >= rows.count) {
        return;
    }
    uint line = quotient(id, rows.size);
    uint image = quotient(line, rows.parts);
    Index start = Index(image) * rows.height * rows.size.value + (id - line * rows.size.value);
    BlockedSum sum = empty_sum();
    for (uint row = line - image * rows.parts.value; row < rows.height; row += rows.parts.value) {
        sum.add(source[start + Index(row) * rows.size.value]);
    }
    sums[id] = sum.value();
}
