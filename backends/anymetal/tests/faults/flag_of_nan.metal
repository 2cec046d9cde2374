// Every thread that finds a NaN sets a flag. All write the same value, which is a race in the letter of the language.
#include <metal_stdlib>
using namespace metal;

kernel void flag_of_nan(device const float *x, device uint *flag, uint i [[thread_position_in_grid]]) {
    if (!isnan(x[i])) return;
#ifdef WRONG
    *flag = 1;  // first, second
#else
    atomic_store_explicit((device atomic_uint *)flag, 1u, memory_order_relaxed);
#endif
}
