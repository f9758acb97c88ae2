#error "unsupported: <cutlass/cutlass.h> is not available on the cpu device"
