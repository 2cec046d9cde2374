// What windows read, for kernels that process every tap. Follows the prelude.

// One window on one axis: `before` taps read the pixel `low`, then `count` taps read first, first + step, ..., then
// `after` taps read the pixel `high`. A pixel of -1 stands for the value 0.
struct Window {
    float before;
    int first;
    int count;
    float after;
};

// What is the same for all windows of an axis.
struct Axis {
    int step;
    int low;
    int high;
};

// A destination pixel on one axis: its source pixel (-1: none), the gradient pixels whose windows may read that pixel,
// and where the entries of these windows begin in a table of the family.
struct Candidates {
    int pixel;
    int first;
    int count;
    int start;
};

// The taps of a window as groups that read the same pixel, in the order of the taps.
int groups(Window window) {
    return (window.before > 0 ? 1 : 0) + window.count + (window.after > 0 ? 1 : 0);
}

int pixel_of(Window window, Axis axis, int group) {
    int tap = group - (window.before > 0 ? 1 : 0);
    return tap < 0 ? axis.low : tap < window.count ? window.first + axis.step * tap : axis.high;
}

float times_of(Window window, int group) {
    int tap = group - (window.before > 0 ? 1 : 0);
    return tap < 0 ? window.before : tap < window.count ? 1.0f : window.after;
}
