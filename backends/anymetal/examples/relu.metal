kernel void relu(device const float *x, device float *y, constant uint &n, uint i [[thread_position_in_grid]]) {
    if (i <= n) y[i] = metal::max(x[i], 0.0f);
}
