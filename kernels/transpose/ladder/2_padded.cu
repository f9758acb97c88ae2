// Transposition, rung 2: a column more than the tile needs.
//
// Over rung 1: rows of shared memory are 33 floats apart, so that the 32 elements of a column lie in 32
// different banks and are read at once. One float of padding a row is all the difference.
//
// Knob: HIGH, rows of the tile that a block's threads move at a time.

constexpr int TILE = 32;

// y[j, i] = x[i, j]; x is m×n, y n×m. Block: TILE × HIGH. Grid: ceil(n / TILE) × ceil(m / TILE).
extern "C" __global__ void transpose_padded(const float *x, float *y, long long m, long long n) {
    __shared__ float tile[TILE][TILE + 1];
    const long long top = (long long)blockIdx.y * TILE, left = (long long)blockIdx.x * TILE;
    for (int r = threadIdx.y; r < TILE; r += HIGH) {
        const long long i = top + r, j = left + threadIdx.x;
        if (i < m && j < n) tile[r][threadIdx.x] = x[i * n + j];
    }
    __syncthreads();
    for (int r = threadIdx.y; r < TILE; r += HIGH) {
        const long long j = left + r, i = top + threadIdx.x;
        if (i < m && j < n) y[j * m + i] = tile[threadIdx.x][r];
    }
}
