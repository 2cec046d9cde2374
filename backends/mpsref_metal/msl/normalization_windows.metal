// Precedes spatial and local contrast normalization: windows of all outputs, and the outputs that read a pixel.
//
// The host computes the geometry. For a row or column, `Run` holds the run of source pixels inside the image that an
// output reads, or of outputs that read a source pixel, and in `centre` the pixel or output in the middle, or -1.

struct Run {
    int first;
    int count;
    int centre;
};

struct WindowSizes {
    uint count;  // packs of the result, or strips of them
    uint channels;
    uint source_height;
    uint source_width;
    uint height;  // of the outputs
    uint width;
    Extent extent;  // of the result; its height counts strips
};

// One output or source pixel: where it is, and its runs.
struct Around {
    uint image;
    uint channel;
    Run rows;
    Run columns;
};

Around around(uint id, constant WindowSizes& sizes, device const Run* rows, device const Run* columns) {
    Place at = place_in(id, sizes.extent);
    return {at.image, at.channel, rows[at.row], columns[at.column]};
}

Index source_index(Around at, int row, int column, constant WindowSizes& sizes) {
    return index_of(at.image, sizes.source_height, sizes.source_width, row, column, sizes.channels, at.channel);
}

Index output_index(Around at, int row, int column, constant WindowSizes& sizes) {
    return index_of(at.image, sizes.height, sizes.width, row, column, sizes.channels, at.channel);
}

bool has_centre(Around at) {
    return at.rows.centre >= 0 && at.columns.centre >= 0;
}

// The source pixel in the middle of an output's window, 0 outside the image.
Values centre_of(device const Storage* x, Around at, constant WindowSizes& sizes) {
    if (has_centre(at)) {
        return Values(x[source_index(at, at.rows.centre, at.columns.centre, sizes)]);
    }
    return Values(0.0f);
}
