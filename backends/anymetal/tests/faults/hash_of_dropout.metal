// A hash selects elements. Its products wrap, which is defined for unsigned integers only.
#include <metal_stdlib>
using namespace metal;

kernel void hash_of_dropout(device uchar *kept, constant uint &seed, uint i [[thread_position_in_grid]]) {
#ifdef WRONG
    int h = int(i + seed) * 73244475;  // here
#else
    uint h = (i + seed) * 73244475u;
#endif
    kept[i] = uchar((h >> 16 ^ h) & 1);
}
