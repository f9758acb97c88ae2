"""A kernel's parameters as the processes with a context get them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter, resolved for a case. `nbytes` and `shape` of buffers, `value` of scalars."""

    name: str
    kind: str  # buffer | workspace | scalar
    dtype: str
    direction: str = "in"
    shape: tuple[int, ...] = ()
    nbytes: int = 0
    value: int | float = 0
    language: str | None = None  # of the kernels that take it; None: all

    def taken_by(self, language: str) -> bool:
        """Whether kernels of this language have the parameter."""
        return self.language in (None, language)
