#error "unsupported: <cub/cub.cuh> is not available on the cpu device"
