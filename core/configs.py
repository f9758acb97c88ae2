"""A search space's valid configurations: rows of indices, and a mapping made of each when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from .model import Config, Value

_AT_ONCE = 4096


class Configs(Sequence[Config]):
    """Configurations in order. Millions of them take a few bytes each.

    Args:
        knobs: each with its values.
        rows: of each configuration the index of each knob's value, in knob order: [configurations, knobs].
        ordered: whether they are in knob-product order.
    """

    def __init__(
        self, knobs: Mapping[str, tuple[Value, ...]], rows: NDArray[np.integer], *, ordered: bool
    ) -> None:
        self._knobs, self.rows, self._in_order = knobs, rows, ordered

    @classmethod
    def where(cls, knobs: Mapping[str, tuple[Value, ...]], valid: NDArray[np.bool_]) -> Configs:
        """Those of the product whose place in `valid`, an axis a knob, is true."""
        sizes = [len(values) for values in knobs.values()]
        rest = np.flatnonzero(valid)
        rows = np.empty((len(rest), len(sizes)), dtype=np.min_scalar_type(max(sizes, default=1)))
        for axis in reversed(range(len(sizes))):
            rest, rows[:, axis] = np.divmod(rest, sizes[axis])
        return cls(knobs, rows, ordered=True)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Config: ...

    @overload
    def __getitem__(self, index: slice) -> Configs: ...

    def __getitem__(self, index: int | slice) -> Config | Configs:
        if isinstance(index, slice):
            ordered = self._in_order and (index.step or 1) > 0
            return Configs(self._knobs, self.rows[index], ordered=ordered)
        row = self.rows[index].tolist()
        return {knob: values[i] for (knob, values), i in zip(self._knobs.items(), row, strict=True)}

    def pick(self, chosen: Sequence[int]) -> Configs:
        """Some of them, by their places."""
        return Configs(self._knobs, self.rows[np.asarray(chosen, dtype=np.intp)], ordered=False)

    def __iter__(self) -> Iterator[Config]:
        knobs = tuple(self._knobs)
        for start in range(0, len(self.rows), _AT_ONCE):
            part = self.rows[start : start + _AT_ONCE]
            if not knobs:
                yield from ({} for _ in part)
                continue
            columns = (
                [values[i] for i in part[:, axis].tolist()]
                for axis, values in enumerate(self._knobs.values())
            )
            for row in zip(*columns, strict=True):
                yield dict(zip(knobs, row, strict=True))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as a list's

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Mapping) and self.position(config) is not None

    def __repr__(self) -> str:
        return f"<{len(self)} configurations of {', '.join(self._knobs)}>"

    def position(self, config: Config) -> int | None:
        """Where a configuration stands among them; None if it doesn't."""
        if config.keys() != self._knobs.keys():
            return None
        rows, order = self._sorted
        low, high = 0, len(rows)
        for axis, (knob, indices) in enumerate(self._indices.items()):
            index = indices.get(config[knob])
            if index is None:
                return None
            column = rows[low:high, axis]
            wanted = rows.dtype.type(index)
            low, high = low + column.searchsorted(wanted), low + column.searchsorted(wanted, side="right")
        if low == high:
            return None
        return int(low) if order is None else int(order[low])

    @cached_property
    def _indices(self) -> dict[str, dict[Value, int]]:
        return {knob: {v: i for i, v in enumerate(values)} for knob, values in self._knobs.items()}

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.integer], NDArray[np.intp] | None]:
        """The rows in knob-product order, and which ones they are (None: those of the same number)."""
        if self._in_order or not self._knobs:
            return self.rows, None
        order = np.lexsort(self.rows.T[::-1])
        return self.rows[order], order
