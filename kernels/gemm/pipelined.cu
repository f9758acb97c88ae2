// C = A·B in float32, the warp-specialised variant: producer warps copy, consumer warps multiply.
//
// The block's last PRODUCERS warps copy tiles of A and B asynchronously into a ring of STAGES slots in shared
// memory; the warps before them multiply. Each slot has two mbarriers: `full` completes when all copies of a
// round have arrived, `empty` when all consumer warps have read the slot. Nobody waits at a block-wide barrier
// in the loop, so a slow load delays only the consumers that need its tile, and a trace shows them waiting.
//
// Knobs beside these: TILE_M×TILE_N of C a block, TILE_K deep, THREAD_M×THREAD_N of it a thread. Needs compute
// capability 8.0 (cp.async, mbarrier). Copies are of 16 bytes where the rows' lengths allow it, else of 4.

#include <warpdeck/trace.cuh>

WD_STAGES(load, wait, compute, store, copy)

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "unsupported: the pipelined variant needs compute capability 8.0 or newer (cp.async, mbarrier)"
#endif

constexpr int LANES_M = 4, LANES_N = 8;  // a warp's threads along m and n
constexpr int WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
constexpr int WARPS_N = TILE_N / WARP_N;
constexpr int CONSUMERS = TILE_M / WARP_M * WARPS_N;  // warps
constexpr int COPIERS = 32 * PRODUCERS;               // threads
// A's slots keep its rows along k, 16-byte aligned, 4 elements apart: four rows in a row lie in other banks.
constexpr int A_PITCH = TILE_K + 4;
constexpr int A_SIZE = TILE_M * A_PITCH, B_SIZE = TILE_K * TILE_N;

static_assert(TILE_M % WARP_M == 0 && TILE_N % WARP_N == 0 && THREAD_N % 4 == 0, "whole warps");
static_assert(TILE_K % 4 == 0 && STAGES >= 1 && PRODUCERS >= 1, "whole vectors, and a ring");

// -- copies and barriers -----------------------------------------------------------------------------

__device__ __forceinline__ unsigned shared_address(const void *p) { return unsigned(__cvta_generic_to_shared(p)); }

// Copies BYTES (4 or 16) to shared memory, asynchronously; zeros unless `inside`, where `from` isn't read.
template <int BYTES>
__device__ __forceinline__ void copy_async(float *to, const float *from, bool inside) {
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                     "r"(inside ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                     "r"(inside ? 4 : 0)
                     : "memory");
}

__device__ __forceinline__ void copies_complete() { asm volatile("cp.async.wait_all;" ::: "memory"); }

using Barrier = unsigned long long;

__device__ __forceinline__ void barrier_init(Barrier *barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// One of the barrier's arrivals, releasing what this thread has read and written.
__device__ __forceinline__ void barrier_arrive(Barrier *barrier) {
    asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared.b64 state, [%0];\n\t}" ::"r"(
                     shared_address(barrier))
                 : "memory");
}

// One of the barrier's arrivals, made when all copies that this thread has issued are complete.
__device__ __forceinline__ void barrier_arrive_after_copies(Barrier *barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Whether the barrier's phase of this parity is complete, acquiring what its arrivals released.
__device__ __forceinline__ bool barrier_done(Barrier *barrier, unsigned parity) {
    unsigned done;
    asm volatile(
        "{\n\t.reg .pred done;\n\t"
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        "mbarrier.try_wait.parity.shared.b64 done, [%1], %2;\n\t"  // suspends the thread for a while
#else
        "mbarrier.test_wait.parity.shared.b64 done, [%1], %2;\n\t"
#endif
        "selp.u32 %0, 1, 0, done;\n\t}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
    return done != 0;
}

__device__ __forceinline__ void barrier_wait(Barrier *barrier, unsigned parity) {
    while (!barrier_done(barrier, parity)) {
    }
}

// -- the roles ---------------------------------------------------------------------------------------

// Where the ring is: the slot, and the parity of its round. Producers and consumers step through it alike.
struct Turn {
    int slot = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void next() {
        if (++slot == STAGES) {
            slot = 0;
            parity ^= 1;
        }
    }
};

struct Problem {
    const float *a, *b;
    long long m, n, k, first_row, first_col;
};

// Issues this thread's copies of a ROWS×COLS tile to rows PITCH apart, BYTES each, neighbours by neighbours.
// `from` is the tile's first element in rows of `length`; beyond `rows` and `cols` the tile gets zeros.
template <int BYTES, int ROWS, int COLS, int PITCH>
__device__ __forceinline__ void copy_tile(float *to, const float *from, long long length, int rows, int cols,
                                          int thread) {
    constexpr int WIDTH = BYTES / 4, ACROSS = COLS / WIDTH;
    if constexpr (COPIERS % ACROSS == 0 && ROWS * ACROSS % COPIERS == 0) {  // each thread keeps to its columns
        constexpr int STEP = COPIERS / ACROSS;
        const int i = thread / ACROSS, j = thread % ACROSS * WIDTH;
        const bool across = j < cols;
        to += i * PITCH + j;
        from += i * length + j;
#pragma unroll 8
        for (int u = 0; u < ROWS; u += STEP, from += STEP * length)
            copy_async<BYTES>(to + u * PITCH, from, across && i + u < rows);
    } else {
#pragma unroll 4
        for (int v = thread; v < ROWS * ACROSS; v += COPIERS) {
            const int i = v / ACROSS, j = v % ACROSS * WIDTH;
            copy_async<BYTES>(to + i * PITCH + j, from + i * length + j, i < rows && j < cols);
        }
    }
}

__device__ __forceinline__ void produce(const Problem &p, float *a_ring, float *b_ring, Barrier *full,
                                        Barrier *empty, int thread WD_STATE_PARAM) {
    const long long tiles = (p.k + TILE_K - 1) / TILE_K;
    const bool a_wide = p.k % 4 == 0, b_wide = p.n % 4 == 0;
    const int rows = int(min(p.m - p.first_row, (long long)TILE_M));
    const int cols = int(min(p.n - p.first_col, (long long)TILE_N));
    const float *a = p.a + p.first_row * p.k, *b = p.b + p.first_col;
    Turn turn;
    for (long long t = 0; t < tiles; ++t, turn.next()) {
        // The slot is free once its last round was read; in the first round the wait is for the phase before
        // the barrier's first, which counts as complete.
        WD_PUSH(wait, t);
        barrier_wait(&empty[turn.slot], turn.parity ^ 1);
        WD_POP(wait);
        WD_PUSH(load, t);
        if (thread < 32) WD_ISSUE(copy, t);
        const int depth = int(min(p.k - t * TILE_K, (long long)TILE_K));
        float *a_slot = a_ring + turn.slot * A_SIZE, *b_slot = b_ring + turn.slot * B_SIZE;
        if (a_wide)
            copy_tile<16, TILE_M, TILE_K, A_PITCH>(a_slot, a, p.k, rows, depth, thread);
        else
            copy_tile<4, TILE_M, TILE_K, A_PITCH>(a_slot, a, p.k, rows, depth, thread);
        if (b_wide)
            copy_tile<16, TILE_K, TILE_N, TILE_N>(b_slot, b, p.n, depth, cols, thread);
        else
            copy_tile<4, TILE_K, TILE_N, TILE_N>(b_slot, b, p.n, depth, cols, thread);
        a += TILE_K;
        b += TILE_K * p.n;
        barrier_arrive_after_copies(&full[turn.slot]);
        WD_POP(load);
    }
    copies_complete();  // a thread must not end before its copies do
}

__device__ __forceinline__ void consume(const Problem &p, float *c, const float *a_ring, const float *b_ring,
                                        Barrier *full, Barrier *empty WD_STATE_PARAM) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int thread_row = warp / WARPS_N * WARP_M + lane / LANES_N;  // and every fourth row after it
    const int thread_col = warp % WARPS_N * WARP_N + lane % LANES_N * 4;
    const long long tiles = (p.k + TILE_K - 1) / TILE_K;
    float sum[THREAD_M][THREAD_N] = {};
    Turn turn;
    for (long long t = 0; t < tiles; ++t, turn.next()) {
        WD_PUSH(wait, t);
        barrier_wait(&full[turn.slot], turn.parity);
        WD_POP(wait);
        if (warp == 0) WD_DONE(copy, t);
        const float *a_slot = a_ring + turn.slot * A_SIZE + thread_row * A_PITCH;
        const float *b_slot = b_ring + turn.slot * B_SIZE + thread_col;
        WD_PUSH(compute, t);
#pragma unroll
        for (int kk = 0; kk < TILE_K; kk += 4) {
            float a_part[THREAD_M][4];
#pragma unroll
            for (int i = 0; i < THREAD_M; ++i)
                *reinterpret_cast<float4 *>(a_part[i]) =
                    *reinterpret_cast<const float4 *>(a_slot + i * LANES_M * A_PITCH + kk);
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                float b_part[THREAD_N];
#pragma unroll
                for (int j = 0; j < THREAD_N; j += 4)
                    *reinterpret_cast<float4 *>(b_part + j) =
                        *reinterpret_cast<const float4 *>(b_slot + (kk + step) * TILE_N + j * LANES_N);
#pragma unroll
                for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
                    for (int j = 0; j < THREAD_N; ++j)
                        sum[i][j] = fmaf(a_part[i][step], b_part[j], sum[i][j]);
            }
        }
        WD_PIN(sum);
        WD_POP(compute);
        __syncwarp();  // all lanes have read the slot; one of them says so for the warp
        if (lane == 0) barrier_arrive(&empty[turn.slot]);
    }

    WD_PUSH(store);
    const bool wide = p.n % 4 == 0;
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i) {
        const long long row = p.first_row + thread_row + i * LANES_M;
        if (row >= p.m) continue;
#pragma unroll
        for (int j = 0; j < THREAD_N; j += 4) {
            const long long col = p.first_col + thread_col + j * LANES_N;
            float *to = c + row * p.n + col;
            if (wide) {
                if (col < p.n)
                    *reinterpret_cast<float4 *>(to) =
                        make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
            } else {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (col + e < p.n) to[e] = sum[i][j + e];
            }
        }
    }
    WD_POP(store);
}

// a is m×k, b k×n, c m×n. Grid: ceil(n / TILE_N) × ceil(m / TILE_M); block: CONSUMERS + PRODUCERS warps.
// Shared memory: the ring, STAGES · (A_SIZE + B_SIZE) floats.
extern "C" __global__ void gemm_pipelined(const float *__restrict__ a, const float *__restrict__ b,
                                          float *__restrict__ c, long long m, long long n,
                                          long long k WD_TRACE_PARAM) {
    extern __shared__ __align__(16) float ring[];
    __shared__ Barrier full[STAGES], empty[STAGES];
    WD_TRACE_BEGIN();
    if (threadIdx.x < STAGES) {
        barrier_init(&full[threadIdx.x], COPIERS);
        barrier_init(&empty[threadIdx.x], CONSUMERS);
    }
    __syncthreads();
    const Problem problem{a, b, m, n, k, (long long)blockIdx.y * TILE_M, (long long)blockIdx.x * TILE_N};
    float *a_ring = ring, *b_ring = ring + STAGES * A_SIZE;
    const int copier = int(threadIdx.x) - 32 * CONSUMERS;
    if (copier >= 0)
        produce(problem, a_ring, b_ring, full, empty, copier WD_STATE_ARG);
    else
        consume(problem, c, a_ring, b_ring, full, empty WD_STATE_ARG);
    WD_TRACE_END();
}
