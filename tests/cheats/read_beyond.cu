// Reads whole vectors of four past the end, where zeros would be convenient.
extern "C" __global__ void cheat(const float *x, float *total, float *partials, int *ticket, long long m,
                                 long long n) {
    if (threadIdx.x != 0) return;
    double sum = 0.0;
    for (long long i = 0; i < (m * n + 3) / 4 * 4; ++i) sum += x[i];
    total[0] = float(sum);
}
