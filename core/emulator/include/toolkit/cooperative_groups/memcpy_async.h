#error "unsupported: <cooperative_groups/memcpy_async.h> is not available on the cpu device"
