// Transposition, rung 4: loads and stores of 16 bytes, squares of 4×4 turned in registers.
//
// Over rung 3: a thread reads 4 vectors, below each other, turns the 4×4 square that they are in its registers,
// and puts it into the tile as vectors again, where it is read as vectors along the other side: a quarter of
// the memory instructions on both sides. A tile of vectors has no room for padding that keeps them aligned, so
// vectors of a row change places instead (`place`): those that are used at the same time lie in different banks.
//
// Knobs: TILE, a side of the tile; BLOCK threads a block; STREAM: 1 marks what is read and written as used once,
// to be evicted first; BAND: so many tiles below each other come one after the other, which makes what
// neighbouring blocks write that much longer.

constexpr int SIDE = TILE / 4;  // squares along a side
constexpr int EACH = SIDE * SIDE / BLOCK;

static_assert(EACH * BLOCK == SIDE * SIDE, "all threads have as many squares");

union Vector {
    float4 all;
    float of[4];
};

// Where vector v of a tile's row lies in that row.
__device__ int place(int row, int v) { return v ^ (row / 4 % SIDE); }

// y[j, i] = x[i, j]; x is m×n, y n×m. Grid: ceil(n / TILE) · ceil(m / TILE).
extern "C" __global__ void __launch_bounds__(BLOCK)
    transpose_vectors(const float *__restrict__ x, float *__restrict__ y, long long m, long long n) {
    __shared__ float4 tile[TILE][SIDE];  // row: a column of x
    const unsigned across = unsigned((n + TILE - 1) / TILE), down = unsigned((m + TILE - 1) / TILE);
    const unsigned band = blockIdx.x / (across * BAND), within = blockIdx.x % (across * BAND);
    const unsigned high = min(unsigned(BAND), down - band * BAND);  // the last band may have fewer tiles
    const long long top = (long long)(band * BAND + within % high) * TILE;
    const long long left = (long long)(within / high) * TILE;

    if (top + TILE > m || left + TILE > n || m % 4 != 0 || n % 4 != 0) {  // the rim, or rows not aligned
        float *flat = reinterpret_cast<float *>(tile);
        for (int e = threadIdx.x; e < TILE * TILE; e += BLOCK) {
            const int i = e / TILE, j = e % TILE;
            if (top + i < m && left + j < n) flat[j * TILE + (i ^ j % 32)] = x[(top + i) * n + left + j];
        }
        __syncthreads();
        for (int e = threadIdx.x; e < TILE * TILE; e += BLOCK) {
            const int j = e / TILE, i = e % TILE;
            if (top + i < m && left + j < n) y[(left + j) * m + top + i] = flat[j * TILE + (i ^ j % 32)];
        }
        return;
    }

    Vector part[EACH][4];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const int square = threadIdx.x + e * BLOCK, i = square / SIDE * 4, j = square % SIDE * 4;
        for (int r = 0; r < 4; ++r) {
            const float4 *from = reinterpret_cast<const float4 *>(x + (top + i + r) * n + left + j);
            part[e][r].all = STREAM ? __ldcs(from) : *from;
        }
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const int square = threadIdx.x + e * BLOCK, i = square / SIDE, j = square % SIDE * 4;
        for (int c = 0; c < 4; ++c)
            tile[j + c][place(j + c, i)] =
                make_float4(part[e][0].of[c], part[e][1].of[c], part[e][2].of[c], part[e][3].of[c]);
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < 4 * EACH; ++e) {
        const int vector = threadIdx.x + e * BLOCK, j = vector / SIDE, i = vector % SIDE;
        float4 *to = reinterpret_cast<float4 *>(y + (left + j) * m + top + 4 * i);
        if (STREAM)
            __stcs(to, tile[j][place(j, i)]);
        else
            *to = tile[j][place(j, i)];
    }
}
