#error "unsupported: <curand_kernel.h> is not available on the cpu device"
