// Threads write different members of one record; a copy of it reads all.
#include <metal_stdlib>
using namespace metal;

struct Record {
    float sum;
    uchar kind;
    float most;
};

kernel void members_of_record(device const float *x, device float *y, uint i [[thread_position_in_threadgroup]]) {
    threadgroup Record record;
    if (i == 0)
        record.sum = x[0] + x[1];
    if (i == 32)
        record.kind = 2;
    if (i == 33)
        record.most = max(x[0], x[1]);  // first
#ifdef WRONG
    simdgroup_barrier(mem_flags::mem_threadgroup);
#else
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    y[i] = record.most;  // second
#ifndef WRONG
    const Record copy = record;
    y[i] += copy.sum + copy.kind;
#endif
}
