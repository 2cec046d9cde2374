kernel void total(device const float *x, device float *sum, uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) {
    threadgroup float part[256];
    part[t] = x[i];
    for (uint s = 128; s > 0; s /= 2) {
        threadgroup_barrier(metal::mem_flags::mem_none);
        if (t < s) part[t] += part[t + s];
    }
    if (t == 0) sum[0] += part[0];
}
