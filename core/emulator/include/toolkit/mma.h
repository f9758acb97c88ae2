#error "unsupported: <mma.h> is not available on the cpu device"
