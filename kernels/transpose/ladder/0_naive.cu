// Transposition, rung 0: every thread moves one element.
//
// Nothing is below. A warp reads 128 bytes in one piece but writes 32 elements a column of y apart: each of them
// is a sector of 32 bytes of its own.
//
// Knobs: WIDE × HIGH threads a block.

// y[j, i] = x[i, j]; x is m×n, y n×m. Grid: ceil(n / WIDE) × ceil(m / HIGH).
extern "C" __global__ void transpose_naive(const float *x, float *y, long long m, long long n) {
    const long long j = (long long)blockIdx.x * WIDE + threadIdx.x;
    const long long i = (long long)blockIdx.y * HIGH + threadIdx.y;
    if (i < m && j < n) y[j * m + i] = x[i * n + j];
}
