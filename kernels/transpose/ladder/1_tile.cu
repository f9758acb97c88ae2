// Transposition, rung 1: a block moves a square tile through shared memory.
//
// Over rung 0: rows of the tile are read, and rows of the transposed tile written, so that both are 128 bytes
// a warp in one piece. The turn happens in shared memory, where reading a column of the tile hits one bank 32
// times.
//
// Knob: HIGH, rows of the tile that a block's threads move at a time.

constexpr int TILE = 32;

// y[j, i] = x[i, j]; x is m×n, y n×m. Block: TILE × HIGH. Grid: ceil(n / TILE) × ceil(m / TILE).
extern "C" __global__ void transpose_tile(const float *x, float *y, long long m, long long n) {
    __shared__ float tile[TILE][TILE];
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
