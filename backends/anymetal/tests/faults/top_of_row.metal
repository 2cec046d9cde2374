// The four largest elements of a row, sorted by insertion into a private array.
#include <metal_stdlib>
using namespace metal;

kernel void top_of_row(device const float *x, device float *top, constant uint &width, constant uint &k,
                       uint row [[thread_position_in_grid]]) {
    float best[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    for (uint j = 0; j < width; j++) {
        float own = x[row * width + j];
#ifdef WRONG
        uint place = k;
#else
        uint place = k - 1;
        if (own <= best[place]) continue;
#endif
        while (place > 0 && best[place - 1] < own) {
            best[place] = best[place - 1];  // here
            place--;
        }
        best[place] = own;  // here
    }
    for (uint j = 0; j < k; j++) top[row * k + j] = best[j];
}
