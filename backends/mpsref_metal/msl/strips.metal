// Follows normalization_windows. A thread computes a strip of STRIP results, one below the other: the sum over a row is
// computed once for all results whose windows contain the row. STRIP is at most the height of a window, so that all
// windows of a strip have a row in common, which may lie outside the image.

#ifndef SPECIALIZED
constant constexpr uint STRIP = 3;
constant constexpr int COLUMNS = 3;  // pixels of a row that are read together
#endif

struct Size {
    uint height;
    uint width;
};

Size source_of(constant WindowSizes& sizes) {
    return {sizes.source_height, sizes.source_width};
}

Size outputs_of(constant WindowSizes& sizes) {
    return {sizes.height, sizes.width};
}

int end_of(Run run) {
    return run.first + run.count;
}

// The results of a thread, and their runs in the image that is read. A strip at the bottom may be shorter; then its
// last run is repeated.
struct Strip {
    Run rows[STRIP];
    Run columns;
    Index start;  // index of row 0 of that image, in the first column of the run
    Index row_size;
    Index result;  // index of the first
    Index result_row_size;
    uint count;
    uint channels;

    Index index_of_result(uint j) {
        return result + Index(j) * result_row_size;
    }
};

Strip strip_of(uint id, Size result, Size read, constant WindowSizes& sizes, device const Run* rows,
               device const Run* columns) {
    Place at = place_in(id, sizes.extent);
    uint top = at.row * STRIP;
    Strip strip;
    #pragma unroll
    for (uint j = 0; j < STRIP; ++j) {
        strip.rows[j] = rows[min(top + j, result.height - 1)];
    }
    strip.columns = columns[at.column];
    strip.channels = sizes.channels;
    strip.count = min(STRIP, result.height - top);
    strip.start = index_of(at.image, read.height, read.width, 0, strip.columns.first, sizes.channels, at.channel);
    strip.row_size = Index(read.width) * sizes.channels;
    strip.result = index_of(at.image, result.height, result.width, int(top), int(at.column), sizes.channels, at.channel);
    strip.result_row_size = Index(result.width) * sizes.channels;
    return strip;
}

// The value in the middle of the window of result j, 0 outside the image.
template <typename T>
Values centre_of(device const T* image, Strip strip, uint j) {
    int row = strip.rows[j].centre;
    int column = strip.columns.centre;
    if (row < 0 || column < 0) {
        return Values(0.0f);
    }
    return Values(image[strip.start + Index(row) * strip.row_size + Index(column - strip.columns.first) * strip.channels]);
}

// The values if all bits of the mask are set, 0 if it is 0. Compilers turn a choice into a branch, which delays reads.
Values masked(Values v, uint mask) {
    return as_type<Values>(as_type<Counts>(v) & Counts(mask));
}

// The sum of the terms of a row: `terms(index, mask)` is the masked term of a pixel. COLUMNS pixels are read together,
// so that a thread waits once for all of them. Past the end of a run the last pixel is read again, with the mask 0.
template <typename Terms>
typename Terms::Sum sum_of_row(Terms terms, Strip strip, int row) {
    Index from = strip.start + Index(row) * strip.row_size;
    typename Terms::Sum sum = typename Terms::Sum();
    for (int first = 0; first < strip.columns.count; first += COLUMNS) {
        #pragma unroll
        for (int k = first; k < first + COLUMNS; ++k) {
            int last = strip.columns.count - 1;
            sum = sum + terms(from + Index(min(k, last)) * strip.channels, k <= last ? ~0u : 0u);
        }
    }
    return sum;
}

// Sums over the windows of a strip. `upper` is, for each result, the sum from its first row to the last row of the top
// result. The rows below are added from result to result, from top to bottom.
template <typename Terms>
struct Windows {
    Terms terms;
    typename Terms::Sum upper[STRIP];
    typename Terms::Sum lower;
    int next;

    // The sum of result j, after that of result j - 1.
    typename Terms::Sum sum_of(Strip strip, uint j) {
        for (; next < end_of(strip.rows[j]); ++next) {
            lower = lower + sum_of_row(terms, strip, next);
        }
        return upper[j] + lower;
    }
};

template <typename Terms>
Windows<Terms> windows_of(Terms terms, Strip strip) {
    Windows<Terms> windows;
    windows.terms = terms;
    windows.lower = typename Terms::Sum();
    windows.next = end_of(strip.rows[0]);
    typename Terms::Sum sum = typename Terms::Sum();
    int row = windows.next;
    #pragma unroll
    for (uint j = STRIP; j > 0; --j) {
        for (; row > strip.rows[j - 1].first; --row) {
            sum = sum + sum_of_row(terms, strip, row - 1);
        }
        windows.upper[j - 1] = sum;
    }
    return windows;
}
