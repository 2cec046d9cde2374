// Odd-even transposition sort of records. Only every second thread may exchange; records have three bytes of padding.
#include <metal_stdlib>
using namespace metal;

struct Record {
    float key;
    uchar tag;
};

kernel void odd_even_sort(device const float *keys, device float *sorted, device uchar *tags,
                          uint t [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]]) {
    threadgroup Record records[64];
    records[t].key = keys[t];
    records[t].tag = uchar(t);
    for (uint round = 0; round < size; round++) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
#ifdef WRONG
        bool is_mine = t + 1 < size;
#else
        bool is_mine = t % 2 == round % 2 && t + 1 < size;
#endif
        if (is_mine) {
            Record a = records[t], b = records[t + 1];  // first
            if (b.key < a.key) {
                records[t] = b;      // second
                records[t + 1] = a;  // second
            }
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sorted[t] = records[t].key;
    tags[t] = records[t].tag;
}
