"""What the kernel must compute, in NumPy; arrays arrive as float64.

PyTorch works too: `import torch`, and arrays arrive as float64 tensors on the CPU.
"""


def reference(x, y, a, n):
    """y = a*x + y, shape [n]. The parameters are the kernel's inputs and scalars, by name."""
    return a * x + y


# More functions that warpdeck uses if they are here:
#
# def make_inputs(case, rng):        # for data = "python": {name: array}; case.params, a NumPy Generator
# def operands(x, y):                # for tolerance.product: (A, B) or (A, B, D), the result A @ B (+ D)
# def scale(x, y):                   # for tolerance.product where no product gives it: what errors grow with
