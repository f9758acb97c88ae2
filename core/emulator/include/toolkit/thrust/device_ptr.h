#error "unsupported: <thrust/device_ptr.h> is not available on the cpu device"
