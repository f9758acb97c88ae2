#error "unsupported: <cute/tensor.hpp> is not available on the cpu device"
