#error "unsupported: <cuda_pipeline.h> is not available on the cpu device"
