// Column sums of a block in a private array, of which only the columns that exist are set.
#include <metal_stdlib>
using namespace metal;

kernel void sums_of_few_columns(device const int *x, device int *sums, constant uint &columns, constant uint &rows,
                                uint block [[thread_position_in_grid]]) {
    int total[8];
#ifdef WRONG
    for (uint c = 0; c < columns; c++) total[c] = 0;
#else
    for (uint c = 0; c < 8; c++) total[c] = 0;
#endif
    for (uint r = 0; r < rows; r++)
        for (uint c = 0; c < columns; c++) total[c] += x[(block * rows + r) * columns + c];
    int all = 0;
    for (uint c = 0; c < 8; c++)
        all += total[c];  // here
    sums[block] = all;
}
