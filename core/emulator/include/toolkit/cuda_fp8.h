#error "unsupported: <cuda_fp8.h> is not available on the cpu device"
