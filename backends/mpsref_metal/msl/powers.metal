// base to the power of -beta, for a positive base. The exponents of most networks need roots only, which are cheaper.
Values inverse_power(Values base, float beta) {
    if (beta == 0.5f || beta == 0.75f) {
        Values r = precise::rsqrt(base);
        return beta == 0.5f ? r : r * (r * precise::rsqrt(r));
    }
    return precise::pow(base, Values(-beta));
}
