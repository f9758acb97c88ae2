"""Stage markers for Numba kernels: what `warpdeck trace` shows on a warp's timeline.

    from warpdeck.kernels.stages import mark, pin, stage

    def make(tile):
        def kernel(x, y):
            for i in range(n):
                with stage("load", i):
                    value = x[i]
                with stage("compute", i):
                    value = value * value
                    value = pin(value)
    …

When a kernel is compiled without tracing, the markers are taken out of the module before Python runs it,
so that its machine code is that of a kernel that never had any. When it is traced, each becomes a record of
eight bytes that the warp's first lane writes. Names are string literals; a module can use 1023 of them.
Markers stand in the kernel itself, not in device functions.

A stage's time is what lies between its markers. Loads, stores and barriers stay there by themselves, but
the compiler moves arithmetic in registers across markers unless its result is pinned: `value = pin(value)`
as a stage's last statement keeps what computes `value` inside. A loop over `range` with nothing but markers
in it is taken out with them.

Plain Python and Numba's simulator run a kernel with markers as it stands: here they do nothing. Numba
itself doesn't know them; a kernel that `numba.cuda.jit` compiles outside of warpdeck must have none
(`warpdeck sessions export --best` writes a file without them).
"""

from __future__ import annotations

from typing import Any


class stage:
    """`with stage("load", i):` a range; ranges nest. `payload`: a whole number, of which 20 bits are kept."""

    def __init__(self, name: str, payload: int = 0) -> None:
        self.name, self.payload = name, payload

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def mark(name: str, payload: int = 0) -> None:
    """An instant. `payload`: a whole number, of which 20 bits are kept."""


def value(name: str, number: float) -> None:
    """A number at an instant, kept in 32 bits: an unsigned or signed integer, or a float32."""


def start(name: str, token: int = 0) -> None:
    """Begin a range that may overlap others or cross iterations; `stop` with the same token (17 bits) ends
    it."""


def stop(name: str, token: int = 0) -> None:
    """End the range that `start` began with this name and token."""


def issue(name: str, flow: int = 0) -> None:
    """An asynchronous operation begins; `done` with the same flow (17 bits), perhaps in another warp of the
    block, is its completion."""


def done(name: str, flow: int = 0) -> None:
    """The operation that `issue` began with this name and flow has completed."""


def pin(*values: Any) -> Any:
    """`a = pin(a)` or `a, b = pin(a, b)`: keep what computes these numbers before this line, and what uses
    them after it. Integers and floats of 16, 32 or 64 bits, complex numbers, `cuda.float32x4` and its like.
    Costs no instruction; does nothing when not traced."""
    return values[0] if len(values) == 1 else values
