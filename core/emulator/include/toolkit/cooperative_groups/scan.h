#error "unsupported: <cooperative_groups/scan.h> is not available on the cpu device"
