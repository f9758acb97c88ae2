#error "unsupported: <cudaTypedefs.h> is not available on the cpu device"
