"""y = a*x + y, one element a thread."""

from numba import cuda


def make(BLOCK):
    """The kernel for one configuration; knobs arrive as arguments."""

    def axpy(x, y, a, n):
        i = cuda.blockIdx.x * BLOCK + cuda.threadIdx.x
        if i < n:
            y[i] = a * x[i] + y[i]

    return axpy
