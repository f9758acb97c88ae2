// Small kernels with one fault each, for compute-sanitizer.
//   nvcc -O1 -lineinfo -arch=sm_90 faults.cu -o faults && compute-sanitizer --tool memcheck ./faults beyond

#include <cstdio>
#include <cstring>

constexpr int N = 120;  // floats a buffer, which ends before the next one begins; threads a block

__global__ void beyond(float *out, int by) {  // memcheck: a write behind the buffer
    out[threadIdx.x + by] = 1.0f;
}

__global__ void misaligned(float *out) {  // memcheck: a float2 where only a float may lie
    *reinterpret_cast<float2 *>(out + 1) = make_float2(1.0f, 2.0f);
}

__global__ void shared_beyond(float *out, int at) {  // memcheck: a read behind shared memory
    extern __shared__ float tile[];
    tile[threadIdx.x] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x + at];
}

__global__ void race(float *out) {  // racecheck: a barrier is missing
    __shared__ float tile[N];
    tile[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = tile[N - 1 - threadIdx.x];
}

__global__ void unwritten(float *out, const float *a) {  // initcheck: nobody wrote the second half
    out[threadIdx.x] = a[threadIdx.x];
}

__global__ void divergent(float *out) {  // synccheck: half a block at a barrier
    if (threadIdx.x < 48) __syncthreads();
    out[threadIdx.x] = 1.0f;
    __syncthreads();
}

__global__ void fine(float *out, const float *a) {
    __shared__ float tile[N];
    tile[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[N - 1 - threadIdx.x];
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "fine";
    float *out, *a;
    cudaMalloc(&out, N * sizeof(float));
    cudaMalloc(&a, N * sizeof(float));
    cudaMemset(a, 0, (strcmp(which, "unwritten") ? N : N / 2) * sizeof(float));
    if (!strcmp(which, "beyond")) beyond<<<1, N>>>(out, 4);
    else if (!strcmp(which, "misaligned")) misaligned<<<1, 1>>>(out);
    else if (!strcmp(which, "shared_beyond")) shared_beyond<<<1, N, N * sizeof(float)>>>(out, 4);
    else if (!strcmp(which, "race")) race<<<1, N>>>(out);
    else if (!strcmp(which, "unwritten")) unwritten<<<1, N>>>(out, a);
    else if (!strcmp(which, "divergent")) divergent<<<1, N>>>(out);
    else fine<<<1, N>>>(out, a);
    const cudaError_t end = cudaDeviceSynchronize();
    printf("%s: %s\n", which, cudaGetErrorString(end));
    cudaFree(out);
    cudaFree(a);
    return 0;
}
