// Transposition, rung 3: larger tiles, several elements in flight a thread.
//
// Over rung 2: a thread reads all its elements into registers before it stores the first, so that TILE² /
// threads independent loads are under way, and a tile's rows are TILE · 4 bytes in one piece: DRAM hands out
// whole pages. Tiles inside the matrix take a path without bounds.
//
// Knobs: TILE, a side of the tile; HIGH, rows of it that a block's threads move at a time.

constexpr int EACH = TILE / HIGH;

// y[j, i] = x[i, j]; x is m×n, y n×m. Block: TILE × HIGH. Grid: ceil(n / TILE) × ceil(m / TILE).
extern "C" __global__ void __launch_bounds__(TILE *HIGH)
    transpose_wide_tile(const float *x, float *y, long long m, long long n) {
    __shared__ float tile[TILE][TILE + 1];
    const long long top = (long long)blockIdx.y * TILE, left = (long long)blockIdx.x * TILE;
    const int column = threadIdx.x, first = threadIdx.y;
    const bool inside = top + TILE <= m && left + TILE <= n;

    float part[EACH];
    const float *from = x + (top + first) * n + left + column;
#pragma unroll
    for (int e = 0; e < EACH; ++e)
        if (inside || (top + first + e * HIGH < m && left + column < n)) part[e] = from[e * HIGH * n];
#pragma unroll
    for (int e = 0; e < EACH; ++e) tile[first + e * HIGH][column] = part[e];
    __syncthreads();
    float *to = y + (left + first) * m + top + column;
#pragma unroll
    for (int e = 0; e < EACH; ++e)
        if (inside || (left + first + e * HIGH < n && top + column < m))
            to[e * HIGH * m] = tile[column][first + e * HIGH];
}
