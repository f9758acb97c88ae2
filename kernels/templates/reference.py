"""What the kernel must compute, in NumPy; arrays arrive as float64."""


def reference(x, y, a, n):
    """y = a*x + y, shape [n]."""
    return a * x + y
